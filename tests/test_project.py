"""The project as files: nothing of one machine in it, and the commands that README promises."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [ROOT / ".ci/run", *sorted(file for file in (ROOT / "scripts").iterdir() if file.is_file())]

# Brackets, so that this file does not hold what it looks for. Accounts of containers and examples are fine.
MACHINE = re.compile(
    r"/[w]ork/|/[r]oot/|/[o]pt/wheels|/[h]ome/(?!(?:USER|me|rocketmq)\b)\w|--(?:(?:extra-)?[i]ndex-url|[f]ind-links)\b"
)
# Registries reached through a mirror would show as hosts in lock files; these need no host at all.
LOCK_HOST = re.compile(r"https?://|\bfile:/|@ ")


def tracked_files() -> list[Path]:
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
        names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        files = [ROOT / name for name in names if name]
    else:  # An unpacked archive: everything but what tools leave behind.
        left_behind = re.compile(r"/(\.venv|__pycache__|\.\w+_cache|_build)/")
        files = [file for file in ROOT.rglob("*") if not left_behind.search(str(file))]
    return [file for file in files if file.is_file()]


def test_no_file_names_this_machine():
    found = []
    for file in tracked_files():
        for number, line in enumerate(file.read_bytes().decode(errors="replace").splitlines(), start=1):
            if MACHINE.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line[:120]}")
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "cd /{}ork/x".format("w"),
        "HOME=/{}oot/".format("r"),
        "/{}ome/anna/x".format("h"),
        "pip --{}ind-links=x".format("f"),
    ],
)
def test_the_search_for_machine_names_finds_them(line):
    assert MACHINE.search(line)


def test_lock_files_pin_versions_and_hashes_and_name_no_host():
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    assert [lock.name for lock in locks] == ["dev.lock", "lake.lock", "runtime.lock", "spark.lock"]
    for lock in locks:
        text = lock.read_text()
        assert not LOCK_HOST.search(text)
        entries = re.split(r"\n(?=\w)", "\n" + text.replace("\\\n", ""))
        packages = [entry for entry in entries if re.match(r"\w", entry)]
        assert packages
        assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", package) for package in packages)


def test_runtime_is_the_same_with_and_without_development():
    """All locks pin the same versions, so that tests try what users run."""
    runtime, spark, dev, lake = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("runtime.lock", "spark.lock", "dev.lock", "lake.lock")
    )
    assert runtime.items() <= dev.items()
    assert runtime.items() <= spark.items()
    assert {name: version for name, version in dev.items() if name in spark} == {
        name: version for name, version in spark.items() if name in dev
    }
    assert runtime.items() <= lake.items()
    others = {**spark, **dev}
    differ = {name for name, version in lake.items() if others.get(name, version) != version}
    assert differ <= {"pyspark", "py4j"}  # Delta's jars are for an older one.


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_executable_and_say_how_they_run(script):
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env ")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_bash_scripts_parse(script):
    if "bash" not in script.read_text().splitlines()[0]:
        pytest.skip("not bash")
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_readme_opens_with_commands_that_exist():
    first_block = re.search(r"```\w*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first_block
    commands = [line.split()[0] for line in first_block[1].splitlines() if line.strip()]
    assert commands == ["scripts/up", "scripts/test"]
    assert all((ROOT / command).is_file() for command in commands)

"""`twinlog demo` as a person runs it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import POISON, modules_of_an_application, run
from tests.support.waiting import SECONDS_MAX


@pytest.mark.timeout(150)  # It takes 30 s where nothing else runs.
def test_nothing_is_missing_after_three_failovers(tmp_path: Path):
    """All three members die once, the master twice, and one freezes that nobody attends to: the account is good, its words and
    the exit status say so.

    Nobody imports from the directory in which it is started.
    """
    kept = tmp_path / "kept"
    application = modules_of_an_application(tmp_path / "application", POISON)
    (application / "json.py").write_text(POISON)
    done = run("demo", "--seconds", "8", "--keep", str(kept), cwd=application, seconds=140)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {" ".join(line.split()[3:5]) for line in done.stdout.splitlines() if " s ✓ " in line}
    acknowledged, found = (next(each for each in lines if each.startswith(word)) for word in ("acknowledged", "found"))
    assert acknowledged.split()[1] == found.split()[1]
    assert {"missing 0", "the logs"} <= lines
    assert "without SEND_OK, and keeps them in divergent/" in done.stdout
    (elected,) = [line for line in done.stdout.splitlines() if "was not heard for" in line]
    assert " is the master in epoch 4: " in elected
    assert "follows as a slave" in done.stdout.partition(elected)[2]
    assert list((kept / "broker-a-0" / "twinlog" / "divergent").iterdir())
    assert f"twinlog up --dir {kept}" in done.stdout


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path):
    (tmp_path / "mine").touch()
    done = run("demo", "--keep", str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path} is not empty" in done.stderr
    assert os.listdir(tmp_path) == ["mine"]


def test_whoever_has_seen_enough_leaves_nothing_behind(tmp_path: Path):
    """SIGINT in the middle: members end, and the directory goes."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([PROGRAM, "demo"], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        while "messages a second" not in process.stdout.readline():
            pass
        (directory,) = tmp_path.iterdir()
        process.send_signal(2)
        process.stdout.read()
        assert process.wait(SECONDS_MAX) == 130
    assert not directory.exists()

"""The wheel: installed in an empty environment it is a whole twinlog, with every file that the program reads; without the extra
`server`, the client library.
"""

import os
import signal
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.process_group.up import POISON, SMALL, free_port_base, modules_of_an_application
from tests.support.requirements import declared, distribution_name, with_what_they_need
from tests.support.waiting import SECONDS_MAX

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "twinlog"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([ROOT / "scripts" / "wheel", directory], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory) -> str:
    """The `twinlog` of a fresh environment with the extra `server`."""
    return installed(wheel, tmp_path_factory.mktemp("environment"), "server")


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory) -> str:
    """The `twinlog` of a fresh environment without extras."""
    return installed(wheel, tmp_path_factory.mktemp("library"))


def installed(wheel: Path, directory: Path, *extras: str) -> str:
    """Make an environment; return its `twinlog`.

    What it depends on is borrowed from this one, package by package, so that nothing is fetched. Neither this checkout is on
    its path nor what only tests need.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "--quiet", "install", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True, timeout=120)
    (site_packages,) = directory.glob("lib/python*/site-packages")
    for name, place in places(with_what_they_need(declared(*extras))).items():
        (site_packages / name).symlink_to(place)
    return str(directory / "bin" / "twinlog")


def places(packages: set[str]) -> dict[str, Path]:
    """The files and directories of these packages, where they are now."""
    found = {}
    for each in distributions():
        if distribution_name(each.metadata["Name"]) in packages:
            for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
                found[top] = Path(str(each.locate_file(top)))
    return found


def test_it_has_every_file_of_the_packages(wheel):
    """Grammars, static files of pages, types: whatever git keeps beside the code, all of it below `twinlog`."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    outside = {
        str(file.relative_to(ROOT))
        for folder in (PACKAGE, *PACKAGE.iterdir())
        for file in (folder.glob("*") if folder == PACKAGE else folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert outside - inside == set()
    assert inside - outside == set()


def test_its_commands_run(program, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for arguments in (["--version"], ["up", "--help"], ["broker", "-p"], ["config", "explain", "flushDiskType"]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_without_the_extra_the_command_says_what_to_install(library, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run([library, "up"], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "twinlog: the command line needs click, which is not installed here. Next: pip install 'twinlog[server]'\n"
    )


ON_ASYNCIO = """
import asyncio, importlib.util
from twinlog.client import Client, From, OutgoingMessage, PushConsumer, open_admin

async def main():
    async with Client("NAMESRV") as client:
        sent = await client.producer("library").send(OutgoingMessage(topic="letters", body=b"from a library"))
        async with PushConsumer(client, "library", {"letters": "*"}, start=From.FIRST) as consumer:
            async for batch in consumer:
                print(sent.status.name, *(message.body.decode() for message in batch))
                break
    async with open_admin(("NAMESRV",)) as admin:
        print([member.role for member in (await admin.list_members()).members])
    print([name for name in ("trio", "click", "numpy") if importlib.util.find_spec(name)])

asyncio.run(main())
"""
APPLICATION = """
import cluster, click, ha, store
import trio
from twinlog.client import Client, From, OutgoingMessage, PushConsumer

async def main():
    async with Client("NAMESRV") as client:
        sent = await client.producer("application").send(OutgoingMessage(topic="greetings", body=b"from an application"))
        async with PushConsumer(client, "application", {"greetings": "*"}, start=From.FIRST) as consumer:
            async for batch in consumer:
                print(sent.status.name, *(message.body.decode() for message in batch))
                break
    print([module.OWNER for module in (cluster, click, ha, store)])

trio.run(main)
"""


def test_it_runs_a_cluster_beside_modules_of_the_same_names(program, library, tmp_path):
    """All from the directory of an application that has a store.py, ha/, cluster.py, click.py and json.py of its own.

    A client on asyncio needs no extra.
    """
    base = free_port_base()
    application = tmp_path / "application"
    modules_of_an_application(application, POISON)
    modules_of_an_application(application / "program", 'OWNER = "application"\n')
    (application / "json.py").write_text(POISON)
    namesrv = f"127.0.0.1:{base}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NAMESRV_ADDR": namesrv}

    def run(*command: object) -> str:
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=SECONDS_MAX, cwd=application, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def twinlog(*arguments: str) -> str:
        return run(program, *arguments)

    command = [program, "up", "--dir", str(tmp_path / "data"), "--port-base", str(base), *SMALL]
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=application, env=environment
        ) as up,
    ):
        assert up.stdout is not None
        try:
            assert f"namesrv={namesrv}" in up.stdout.readline(), errors.read_text()
            assert twinlog("send", "orders", "hello").startswith("SEND_OK")
            assert "hello" in twinlog("consume", "orders")
            main = application / "program" / "main.py"
            main.write_text(APPLICATION.replace("NAMESRV", namesrv))
            assert run(Path(program).with_name("python"), main) == (
                "SEND_OK from an application\n['application', 'application', 'application', 'application']\n"
            )
            main = tmp_path / "on_asyncio.py"
            main.write_text(ON_ASYNCIO.replace("NAMESRV", namesrv))
            found = run(Path(library).with_name("python"), main)
            assert found == "SEND_OK from a library\n['master', 'slave']\n[]\n"
        finally:
            up.send_signal(signal.SIGTERM)
            assert up.wait(SECONDS_MAX) == 0

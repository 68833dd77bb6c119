"""The short examples of docs/clients.md in Java and Go, as its readers run them."""

import subprocess
from pathlib import Path

import pytest

from tests.clients import programs
from tests.support.clients.remoting import create_topic
from tests.support.group.in_thread import running_cluster
from tests.support.process_group import jars
from twinlog.client import SyncClient

HERE = Path(__file__).parent / "short"
pytestmark = pytest.mark.timeout(150)
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


@pytest.fixture
def namesrv(tmp_path):
    with running_cluster(tmp_path / "cluster") as address:
        with SyncClient(address) as client:
            (broker,) = client.admin.list_members().members
        create_topic(broker.address, "Greetings")
        yield address


def said(command, *, first):
    """Both lines of a program, which ends with its input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        lines = (line.strip() for line in process.stdout)
        wanted = [
            line for line in iter(lines.__next__, "hello") if line == first
        ]  # Java's clients also print what they log.
        assert wanted == [first]
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("version", [jars.VERSION, jars.VERSION_5])
def test_java(namesrv, version, tmp_path):
    class_path = ":".join(jars.class_path(version, sources=HERE))
    said(["java", "-Xmx128m", f"-Duser.home={tmp_path}", "-cp", class_path, "Short", namesrv], first="SEND_OK")


@pytest.mark.long
def test_go(namesrv):
    """It may take a minute on a busy machine."""
    programs.require_go()
    said([str(programs.go_short()), namesrv], first="true")


def test_the_page_shows_these_files():
    text = PAGE.read_text()
    for name in ("Short.java", "main.go"):
        assert f"```{{literalinclude}} ../tests/clients/short/{name}" in text
        assert "// begin" in (HERE / name).read_text()
        assert "// end" in (HERE / name).read_text()

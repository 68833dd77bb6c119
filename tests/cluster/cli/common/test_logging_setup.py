"""The log of a process: for a person on a terminal, as JSON for a collector."""

import json
import os
import pty
import subprocess
import sys

import pytest

from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.common.logging_setup import FIRST_FIELDS, is_json

PROGRAM = """
import structlog
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
set_up_log(for_good=True)
class Parts:
    def __repr__(self):
        raise SystemExit("all of the broker is printed")
def work(parts):
    raise ValueError("the disk is gone")
try:
    work(Parts())
except ValueError:
    structlog.get_logger().exception("a task failed", task="flush")
"""
WHO_SPEAKS = """
import structlog, trio
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from structlog.contextvars import bound_contextvars
set_up_log(for_good=True)
log, now = structlog.get_logger(), {"member": "broker-a-0", "role": "slave", "epoch": 3}
speak_for(lambda: now)
async def main():
    async with trio.open_nursery() as nursery:
        with bound_contextvars(peer="10.0.0.2:10912"):
            nursery.start_soon(task)
async def task():
    log.info("one", bytes=5)
    now.update(role="master", epoch=4)
    log.info("two", epoch=9)
trio.run(main)
log.info("three", secretKey="x")
"""


def run(program: str, **env: str) -> str:
    given = {name: value for name, value in os.environ.items() if name != "TWINLOG_LOG"} | env
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, env=given).stderr


def test_a_logged_exception_shows_where_but_not_every_value_there():
    """The parts of a broker hold each other: with the values of variables one traceback takes minutes."""
    said = run(PROGRAM, TWINLOG_LOG="console")
    for part in ("a task failed", "task=flush", "in work", "ValueError: the disk is gone"):
        assert part in said


def test_a_service_without_terminal_writes_one_json_object_a_line():
    (line,) = run(PROGRAM).splitlines()
    told = json.loads(line)
    assert (told["level"], told["event"], told["task"]) == ("error", "a task failed", "flush")
    assert "ValueError: the disk is gone" in told["exception"]
    assert told["timestamp"].endswith("Z")


def test_each_line_says_who_speaks_as_it_is_now_and_about_whom():
    """A task that runs on while its member gets another role tells the new one; what a line says itself comes first."""
    one, two, three = map(json.loads, run(WHO_SPEAKS).splitlines())
    assert [(each["role"], each["epoch"]) for each in (one, two, three)] == [("slave", 3), ("master", 9), ("master", 4)]
    assert [each.get("peer") for each in (one, two, three)] == ["10.0.0.2:10912", "10.0.0.2:10912", None]
    assert list(one) == [*FIRST_FIELDS, "bytes"]
    assert three["secretKey"] == "******"


def test_a_terminal_gets_lines_for_people():
    master, slave = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "TWINLOG_LOG"}
    subprocess.run(
        [sys.executable, "-c", WHO_SPEAKS], stderr=slave, timeout=50, check=True, env={**env, "NO_COLOR": "1"}
    )
    os.close(slave)
    first = os.read(master, 65536).decode().splitlines()[0]
    os.close(master)
    assert "one" in first
    assert "role=slave" in first
    assert not first.startswith("{")


@pytest.mark.parametrize(
    ("chosen", "of_service", "on_terminal", "json_lines"),
    [
        ("", True, False, True),
        ("", True, True, False),
        ("", False, False, False),
        ("json", False, True, True),
        ("console", True, False, False),
    ],
    ids=["service", "service on a terminal", "command in a pipe", "json by choice", "console by choice"],
)
def test_the_form_suits_whoever_reads_it(chosen, of_service, on_terminal, json_lines):
    assert is_json(chosen, of_service=of_service, on_terminal=on_terminal) == json_lines


def test_another_form_is_refused():
    with pytest.raises(CliError, match="TWINLOG_LOG=xml"):
        is_json("xml", of_service=True, on_terminal=False)

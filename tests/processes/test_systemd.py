"""Processes as systemd runs them, and the units that tell it to."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, free_port_base
from tests.support.waiting import SECONDS_MAX

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
WATCHDOG_SECONDS = 1.5


@contextmanager
def service(tmp_path: Path, *arguments: str):
    """A command with NOTIFY_SOCKET and WATCHDOG_USEC, and the socket that hears it."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(SECONDS_MAX)
        env = {**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
        with subprocess.Popen(
            [PROGRAM, *arguments], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process, listener
            finally:
                process.kill()


def hear(listener: socket.socket, wanted: str) -> list[str]:
    """What is said until `wanted` is."""
    said = []
    while not said or wanted not in said[-1]:
        said.append(listener.recv(4096).decode())
    return said


def drain(listener: socket.socket) -> list[bytes]:
    """What was said before now."""
    listener.setblocking(False)
    said = []
    with suppress(BlockingIOError):
        while True:
            said.append(listener.recv(4096))
    listener.settimeout(SECONDS_MAX)
    return said


def test_a_broker_says_when_it_serves_what_it_does_and_that_it_stops(tmp_path):
    base = free_port_base(brokers=1)
    options = {"listenPort": base + 11, "storePathRootDir": tmp_path / "store", "brokerName": "b"}
    sets = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    with service(tmp_path, "broker", *sets, *SMALL) as (process, listener):
        assert "READY=1\nSTATUS=broker=b-0 address=" in hear(listener, "READY=1")[-1]
        assert "STATUS=ASYNC_MASTER, serving" in hear(listener, "STATUS=")[-1]
        hear(listener, "WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        assert hear(listener, "STOPPING=1")
        assert process.wait(SECONDS_MAX) == 0


def test_a_process_that_stands_still_is_silent(tmp_path):
    """That silence is what systemd waits for, to end and restart it."""
    with service(tmp_path, "namesrv", "--port", str(free_port_base()), "--set", "kvConfigPath=") as (process, listener):
        hear(listener, "READY=1")
        hear(listener, "WATCHDOG=1")
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        drain(listener)
        time.sleep(WATCHDOG_SECONDS)
        assert drain(listener) == []
        process.send_signal(signal.SIGCONT)
        assert hear(listener, "WATCHDOG=1")


@pytest.fixture
def units(tmp_path):
    """The units with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        assert os.environ.get("CI") != "true", "systemd-analyze is missing: apt install systemd"
        pytest.skip("needs systemd-analyze: apt install systemd")
    found = []
    for unit in sorted(UNITS.glob("*.service")):
        copy = tmp_path / unit.name.replace("@", "@broker-a-0")
        copy.write_text(unit.read_text().replace("/opt/twinlog/bin/twinlog", PROGRAM))
        found.append(copy)
    return found


def test_systemd_finds_nothing_wrong_with_the_units(units):
    assert [unit.name for unit in units] == [
        "twinlog-broker@broker-a-0.service",
        "twinlog-dashboard.service",
        "twinlog-namesrv.service",
    ]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "twinlog" in line]
    assert (done.returncode, ours) == (0, [])


def test_a_slip_in_a_unit_would_be_found(units):
    units[0].write_text(units[0].read_text().replace("WatchdogSec=", "WatchDogSec="))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", units[0]], capture_output=True, text=True)
    assert "WatchDogSec" in done.stderr


def test_the_units_leave_little_to_an_intruder(units):
    """systemd's own measure: 10 is everything, below 2.5 is called OK."""
    for unit in units:
        command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", unit]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-500:]


def test_a_broker_that_died_has_time_to_be_started_again(units):
    """In this time a group with autoFailover=members elects nobody: systemd waits, then it takes a second until it listens."""
    text = units[0].read_text()
    (pause,) = re.findall(r"^RestartSec=(\d+)$", text, re.MULTILINE)
    (wait_ms,) = re.findall(r"TWINLOG_AUTO_FAILOVER_RESTART_MS=(\d+)$", text, re.MULTILINE)
    assert int(pause) + 1.5 < int(wait_ms) / 1000


def test_the_units_commands_exist_and_they_tell_when_they_are_ready(units):
    for unit in units:
        text = unit.read_text()
        assert "Type=notify\n" in text
        command = re.search(r"^ExecStart=(\S+) (\S+)", text, re.MULTILINE)
        assert command
        done = subprocess.run([*command.groups(), "--help"], capture_output=True, timeout=SECONDS_MAX)
        assert done.returncode == 0

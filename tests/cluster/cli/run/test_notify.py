"""What systemd hears: real datagrams on a real socket."""

import os
import socket

import pytest
import trio

from twinlog.cluster.cli.run.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    """The socket that systemd would listen at, and its name as NOTIFY_SOCKET has it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@twinlog-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if name.startswith("@") else name)
        listener.setblocking(False)
        yield listener, name


def heard(listener: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(listener.recv(4096).decode())
        except BlockingIOError:
            return said


def test_ready_and_stopping_come_with_words(systemd):
    listener, name = systemd
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    assert notifier is not None
    notifier.ready("broker=a\nREADY=0")
    notifier.stopping()
    assert heard(listener) == ["READY=1\nSTATUS=broker=a READY=0", "STOPPING=1\nSTATUS=stopping"]


def test_no_child_speaks_for_its_parent():
    """Variables that children inherit would let them."""
    environment = {
        "NOTIFY_SOCKET": "@x",
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    notifier = Notifier.from_environment(environment)
    assert notifier is not None
    assert notifier.watchdog_seconds == 3
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("environment", "watchdog_seconds"),
    [
        ({"NOTIFY_SOCKET": "@x"}, None),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, None),  # Meant for another process.
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000"}, 1),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "nonsense"}, None),
    ],
)
def test_who_is_watched(environment, watchdog_seconds):
    notifier = Notifier.from_environment(environment)
    assert notifier is not None
    assert notifier.watchdog_seconds == watchdog_seconds


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_systemd_nothing_is_said(environment):
    assert Notifier.from_environment(environment) is None


async def test_the_watchdog_hears_three_times_in_its_time_and_a_new_status_once(systemd, autojump_clock, nursery):
    listener, name = systemd
    status = ["master"]
    notifier = Notifier(name, watchdog_seconds=30)
    notifier.ready("ready", lambda: status[0])
    nursery.start_soon(notifier.keep_alive)
    await trio.sleep(29)
    status[0] = "slave"
    await trio.sleep(2)
    assert heard(listener) == [
        "READY=1\nSTATUS=ready",
        "WATCHDOG=1\nSTATUS=master",
        "WATCHDOG=1",
        "WATCHDOG=1",
        "WATCHDOG=1\nSTATUS=slave",
    ]


async def test_a_systemd_that_does_not_listen_harms_nobody(tmp_path, autojump_clock, nursery):
    """It may be restarted itself; and its socket may be full."""
    notifier = Notifier(str(tmp_path / "nobody"), watchdog_seconds=1)
    notifier.ready("ready")
    nursery.start_soon(notifier.keep_alive)
    await trio.sleep(2)
    notifier.stopping()


async def test_a_status_that_cannot_be_told_ends_nothing(systemd, nursery):
    """The watchdog is fed on, with the words that were told last."""
    listener, name = systemd
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"})
    assert notifier is not None

    def describe():
        raise KeyError("epoch")

    notifier.ready("broker=a", describe)
    nursery.start_soon(notifier.keep_alive)
    await trio.sleep(0.25)
    said = heard(listener)
    assert said[0] == "READY=1\nSTATUS=broker=a"
    assert set(said[1:]) == {"WATCHDOG=1"}
    assert len(said) >= 3

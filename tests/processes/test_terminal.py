"""`twinlog up` on a terminal: a table that lives, and words above it."""

import contextlib
import os
import pty
import select
import signal
import subprocess

import psutil
import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, free_port_base
from tests.support.waiting import SECONDS_MAX, wait_for

pytestmark = pytest.mark.timeout(180)


class Terminal:
    """A program whose output goes to a terminal."""

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self._ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
        self.process = subprocess.Popen(
            [PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)

    def shows(self, words: str) -> bool:
        """Whether it has shown them by now."""
        with contextlib.suppress(OSError):  # The program has ended.
            if select.select([self._ours], [], [], 0.05)[0]:
                self.seen += os.read(self._ours, 65_536).decode("utf-8", "replace")
        return words in self.seen

    def wait_for(self, words: str) -> None:
        wait_for(lambda: self.shows(words), f"{words!r} on the terminal")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        wait_for(lambda: self.shows("\0") or self.process.poll() is not None, "the end")
        os.close(self._ours)
        return self.process.wait(SECONDS_MAX)


def test_a_live_table_and_the_report_of_a_death(tmp_path):
    base = free_port_base()
    terminal = Terminal("up", "--dir", str(tmp_path), "--port-base", str(base), "--no-dashboard", *SMALL)
    try:
        terminal.wait_for(f"ready namesrv=127.0.0.1:{base}\r\n")
        terminal.wait_for("Ctrl-C stops")
        assert "MEMBER" in terminal.seen
        assert "streaming" in terminal.seen
        slaves = [p for p in psutil.Process(terminal.process.pid).children() if "broker-a-1" in " ".join(p.cmdline())]
        slaves[0].kill()
        terminal.wait_for("broker-a-1 was ended by SIGKILL")
        terminal.wait_for("broker-a-1 was restarted")
    finally:
        status = terminal.stop()
    assert status == 0
    assert "Traceback" not in terminal.seen


def test_a_lag_that_stays_on_the_screen(up):
    """It changes where it stands, with an arrow and a word besides every colour, and Ctrl-C leaves it without a fault."""
    up.twinlog("send", "orders", "x", "--count", "4")
    up.twinlog("consume", "orders", "--group", "audit", "--count", "1")
    terminal = Terminal("lag", "-n", up.namesrv, "-w", "0.2")
    try:
        terminal.wait_for("Ctrl-C ends")
        terminal.wait_for("no consumer")
        terminal.wait_for("→ 0/s")
        up.twinlog("send", "orders", "x", "--count", "20")
        terminal.wait_for("↑ +")
    finally:
        status = terminal.stop()
    assert status == 0
    assert "Traceback" not in terminal.seen


def test_a_name_is_typed_before_a_topic_is_gone(up):
    up.twinlog("topic", "create", "orders")
    terminal = Terminal("topic", "delete", "orders", "-n", up.namesrv)
    terminal.wait_for("type the topic's name (orders)")
    os.write(terminal._ours, b"no\n")
    terminal.wait_for("is not the topic's name")
    wait_for(lambda: terminal.process.poll() is not None, "the end")
    assert terminal.stop() == 4
    assert "orders" in up.twinlog("topic", "list")

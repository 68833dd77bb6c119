"""How far a command is, in words and as a bar."""

import os
import pty
import subprocess
import sys

from twinlog.cluster.cli.common import progress as module


def test_without_a_terminal_there_is_a_line_now_and_then(capsys):
    now = 0.0
    report = module._lines("verify", lambda: now)
    for second in range(100):
        now = float(second)
        report(second * 1_000_000, 100_000_000)
    assert capsys.readouterr().err.splitlines() == [f"verify: {percent}% of 100.0 MB" for percent in (30, 60, 90)]


def test_what_is_done_at_once_says_nothing(capsys):
    with module.progress("verify") as report:
        report(1, 1)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar():
    script = """
import time
from twinlog.cluster.cli.common.progress import progress
with progress("verify") as report:
    report(1, 4)
    time.sleep(0.5)
    report(4, 4)
"""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", script],
        stderr=theirs,
        stdout=subprocess.PIPE,
        timeout=50,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert "verify" in shown
    assert "25%" in shown

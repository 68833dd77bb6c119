"""The dashboard that `twinlog up` runs, and the command by itself."""

import json
import socket
import urllib.error
import urllib.request

from tests.support.process_group.up import free_port_base, run, running
from tests.support.waiting import wait_for

HOST = "127.0.0.1"


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.URLError:
        return ""


def test_up_serves_a_dashboard_and_starts_it_again(tmp_path):
    """It shows the cluster, has a token of its owner's, is back after kill -9, and is gone with the cluster."""
    with running(tmp_path / "up", "--slaves", "1", with_dashboard=True) as up:
        up.wait_ready()
        assert json.loads(answers(f"{up.dashboard}/livez"))["kind"] == "dashboard"  # It waits, and is not refused.
        assert "1 of 1 slave" in answers(up.dashboard)
        token = up.directory / "dashboard.token"
        assert token.stat().st_mode & 0o777 == 0o600
        wait_for(lambda: str(token) in up.stderr, "where the token is")
        (child,) = [each for each in up.children() if "dashboard" in each.cmdline()]
        child.kill()
        wait_for(lambda: "dashboard was ended by SIGKILL; it restarts in" in up.stderr, "the report of its death")
        assert json.loads(answers(f"{up.dashboard}/livez"))["live"]
        up.twinlog("list")
    assert answers(f"{up.dashboard}/livez") == ""


def test_a_busy_port_keeps_the_dashboard_away_and_nothing_else(tmp_path):
    base = free_port_base()
    with (
        socket.create_server((HOST, base + 1)),
        running(tmp_path / "up", "--slaves", "0", port_base=base, with_dashboard=True) as up,
    ):
        assert up.process.stdout is not None
        assert up.process.stdout.readline() == f"ready namesrv={up.namesrv}\n"
        assert f"no dashboard: Port {base + 1} (dashboard) is in use by" in up.stderr


def test_a_dashboard_whose_port_is_taken_says_who_has_it():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        done = run("dashboard", "-n", f"{HOST}:1", "--listen", f"{HOST}:{port}")
    assert done.returncode == 1
    assert f"Port {port} (the dashboard) is in use by" in done.stderr


def test_a_token_file_that_cannot_be_used_is_told_at_once(tmp_path):
    path = tmp_path / "token"
    done = run("dashboard", "--token-file", str(path))
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True)
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    done = run("dashboard", "--token-file", str(path))
    assert (done.returncode, "chmod" in done.stderr) == (2, True)


def test_an_address_that_is_none():
    done = run("dashboard", "--listen", "here")
    assert done.returncode == 2
    assert "expected HOST:PORT" in done.stderr

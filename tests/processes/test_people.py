"""What a person does with messages, groups and settings, in a terminal and in scripts, against a running cluster."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import run
from tests.support.waiting import SECONDS_MAX, wait_for

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def home(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "share")}


def document(up, *arguments: str) -> dict:
    return json.loads(up.twinlog(*arguments, "-o", "json"))


@pytest.mark.quick
def test_the_way_of_a_message(up):
    """Made a topic, sent, looked at, consumed, moved back, consumed again."""
    up.twinlog("topic", "create", "orders", "--queues", "2")
    up.twinlog("send", "orders", "hello", "--keys", "k1", "--count", "4")
    assert "k1" in up.twinlog("peek", "orders", "--key", "k1")
    assert up.twinlog("consume", "orders", "--group", "audit").count("hello") == 4
    assert document(up, "lag", "audit")["topics"][0]["lag_messages"] == 0
    up.twinlog("group", "reset", "audit", "orders", "--to", "first", "--yes")
    assert document(up, "lag", "audit")["topics"][0]["lag_messages"] == 4
    assert up.twinlog("consume", "orders", "--group", "audit").count("hello") == 4
    up.twinlog("topic", "delete", "orders", "--yes")
    assert "orders" not in up.twinlog("topic", "list")


def test_tail_prints_what_comes_and_ends_with_ctrl_c(up):
    up.twinlog("topic", "create", "orders")
    command = [PROGRAM, "tail", "orders", "-n", up.namesrv, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "waiting for messages of orders" in tail.stderr.readline()
        wait_for(lambda: _sees(up, tail), "the first new message")
        tail.send_signal(signal.SIGINT)
        assert tail.wait(SECONDS_MAX) == 0
        assert "Traceback" not in tail.stderr.read()


def _sees(up, tail) -> bool:
    """It says that it waits a moment before it does."""
    os.set_blocking(tail.stdout.fileno(), False)
    up.twinlog("send", "orders", "new")
    time.sleep(0.2)
    line = tail.stdout.readline()
    return bool(line) and json.loads(line)["body"] == "new"


def test_a_change_of_configuration_lasts(up):
    up.twinlog("config", "set", "broker-a-0", "fileReservedTime=48", "--yes")
    (option,) = document(up, "config", "get", "broker-a-0", "fileReservedTime")["options"]
    assert (option["value"], option["source"], option["default"]) == ("48", "set", "72")
    assert "fileReservedTime=48" in (up.directory / "conf" / "broker-a-0.conf").read_text()
    up.member("broker-a-0").kill()
    wait_for(lambda: _value(up) == "48", "the broker to be back with it")


def _value(up) -> str | None:
    done = run("config", "get", "broker-a-0", "fileReservedTime", "-o", "tsv", namesrv=up.namesrv)
    return done.stdout.splitlines()[1].split("\t")[1] if done.returncode == 0 else None


def test_a_bundle_of_a_running_cluster(up, tmp_path):
    up.twinlog("send", "orders", "a body that is nobody else's business")
    out = tmp_path / "case.tar.gz"
    told = up.twinlog("bundle", "--out", str(out), "--logs", str(up.directory / "logs"))
    assert "logs/broker-a-0.log" in told
    listed = subprocess.run(["tar", "xzOf", str(out)], capture_output=True, text=True, check=True).stdout
    assert "broker-a-1" in listed
    assert "nobody else" not in listed


def test_a_context_is_enough(up, home):
    run("context", "add", "here", "-n", up.namesrv, env=home)
    assert "broker-a-0" in run("list", env=home).stdout


def test_watching_in_a_pipe_prints_again_and_again(up):
    up.twinlog("send", "orders", "x")
    up.twinlog("consume", "orders", "--group", "audit")
    command = [PROGRAM, "lag", "-n", up.namesrv, "-w", "0.2", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        reports = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(SECONDS_MAX) == 0
    assert reports[0]["topics"][0]["change_per_second"] is None
    assert reports[2]["topics"][0]["change_per_second"] == 0


def test_nobody_there_is_told_within_a_moment(home):
    done = run("topic", "list", "-n", "127.0.0.1:1", env=home)
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "Error: The name server cannot be reached."
    assert "twinlog up" in done.stderr

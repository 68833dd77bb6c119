"""The log of running members, as a collector reads it."""

import json
import os
import subprocess
from pathlib import Path

from tests.support.process_group.ports import free_port
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, running, twinlog
from tests.support.waiting import SECONDS_MAX, wait_for


def start(*command: str, stderr) -> subprocess.Popen[str]:
    """A service, serving."""
    env = {name: value for name, value in os.environ.items() if name != "TWINLOG_LOG"}
    process = subprocess.Popen([PROGRAM, *command], stdout=subprocess.PIPE, stderr=stderr, env=env, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready"), f"{command} has ended"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    assert process.wait(SECONDS_MAX) == 0
    assert process.stdout is not None
    process.stdout.close()


def broker_options(port: int, directory: Path) -> list[str]:
    keys = {
        "brokerName": "broker-a",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "storePathRootDir": directory / "store",
    }
    return [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]


def test_a_brokers_log_in_a_pipe_is_json_and_messages_add_nothing_to_it(tmp_path: Path):
    """Each line is an object that says who, in which role and epoch; a thousand messages are none of the log's business."""
    port, namesrv_port = free_port((-2, 0, 1, 3)), free_port((0, 2))
    address, said = f"127.0.0.1:{namesrv_port}", tmp_path / "broker.stderr"
    namesrv = start("namesrv", "--port", str(namesrv_port), "--set", "bindAddress=127.0.0.1", stderr=subprocess.DEVNULL)
    with said.open("wb") as stderr:
        broker = start("broker", "-n", address, *broker_options(port, tmp_path), *SMALL, stderr=stderr)
    try:
        twinlog("send", "T", "x", namesrv=address)  # Makes the topic.
        before = said.read_text()
        twinlog("send", "T", "x", "--count", "1000", namesrv=address)
        assert said.read_text() == before
    finally:
        end(broker)
        end(namesrv)
    lines = said.read_text().splitlines()
    assert [line for line in lines if not line.startswith(("{", "note:", "warning:"))] == []
    told = [json.loads(line) for line in lines if line.startswith("{")]
    for line in told:
        assert (line["member"], line["role"], line["epoch"]) == ("broker-a-0", "master", 0), line
        assert {"timestamp", "level", "event"} <= line.keys()
    assert {"store opened", "registered", "topic created by a message"} <= {line["event"] for line in told}


def test_up_keeps_its_members_logs_for_people(tmp_path: Path):
    """Their last lines are shown when one dies, and somebody looks into the files; TWINLOG_LOG=json changes that."""
    with running(tmp_path / "up") as up:
        up.wait_ready()
        log = tmp_path / "up" / "logs" / "broker-a-0.log"
        wait_for(lambda: "slave connected" in log.read_text(), "the slave's line")
        (line,) = [each for each in log.read_text().splitlines() if "slave connected" in each]
    assert not line.startswith("{")
    for part in ("member=broker-a-0", "role=master", "epoch=", "peer=127.0.0.1:"):
        assert part in line

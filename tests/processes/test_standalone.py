"""`twinlog standalone`: a name server and a broker in one process, at an address that clients are told."""

import subprocess

import psutil
import pytest

from tests.support.process_group.ports import HOST, free_broker_port, free_port
from tests.support.process_group.process import PROGRAM, Process
from tests.support.process_group.up import run, twinlog


def options(directory, namesrv: int, broker: int) -> list[str]:
    return ["--port", str(namesrv), "--set", f"listenPort={broker}", "--set", f"storePathRootDir={directory / 'store'}"]


@pytest.mark.quick
def test_a_client_sends_and_receives_once_it_says_ready(tmp_path):
    """A topic of --topic has a route by then; the process ends cleanly, and its messages are there after the next start."""
    namesrv, broker = free_port(), free_broker_port()
    made = ["--topic", "orders", "--topic", "paid", "--set", "autoCreateTopicEnable=false"]
    command = [PROGRAM, "standalone", *options(tmp_path, namesrv, broker), *made]
    address = f"{HOST}:{namesrv}"
    with Process("standalone", command, log=tmp_path / "log") as process:
        process.wait_ready()
        assert process.printed(f"ready namesrv=0.0.0.0:{namesrv} broker={HOST}:{broker}")
        listed = twinlog("topic", "list", namesrv=address)
        assert {"orders", "paid"} <= {line.split()[0] for line in listed.splitlines()}
        assert "SEND_OK" in twinlog("send", "orders", "hello", namesrv=address)
        assert psutil.Process(process.pid).children() == []
        process.stop()
        process.start()
        process.wait_ready()
        assert "hello" in twinlog("consume", "orders", "--group", "readers", namesrv=address)


def test_clients_are_told_the_address_that_was_given(tmp_path):
    """As a container's published port: another one than the port inside."""
    namesrv, broker, published = free_port(), free_broker_port(), free_port()
    command = [PROGRAM, "standalone", *options(tmp_path, namesrv, broker), "--address", f"127.0.0.2:{published}"]
    with Process("standalone", command, log=tmp_path / "log") as process:
        process.wait_ready()
        assert process.printed(f"ready namesrv=0.0.0.0:{namesrv} broker=127.0.0.2:{published}")
        refused = run("send", "orders", "hello", namesrv=f"{HOST}:{namesrv}")
        assert f"127.0.0.2:{published}" in refused.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--address", "127.0.0.1:nowhere"), "brokerPort1"),
        (("--address", "a b"), "brokerIP1"),
        (("--set", "listenPort=70000"), "listenPort"),
    ],
)
def test_a_wrong_option_is_told_before_anything_starts(wrong, says):
    done = subprocess.run([PROGRAM, "standalone", *wrong], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert says in done.stderr

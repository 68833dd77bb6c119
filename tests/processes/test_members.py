"""`twinlog namesrv` and `twinlog broker`: one process each, with RocketMQ's own files."""

import os
import signal
import subprocess

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import free_port_base, run

pytestmark = pytest.mark.timeout(180)
# RocketMQ's own conf/2m-2s-sync/broker-a.properties, and keys that only a JVM has a use for.
BROKER_CONF = """
# Licensed to the Apache Software Foundation
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=SYNC_MASTER
flushDiskType=ASYNC_FLUSH
transientStorePoolEnable=false
sendMessageThreadPoolNums=16
"""


def ready_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.quick
def test_name_server_and_broker_say_when_they_are_ready_and_stop_cleanly(tmp_path):
    base = free_port_base()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{BROKER_CONF}listenPort={base + 11}\nstorePathRootDir={tmp_path}/store\nbindAddress=127.0.0.1\n")
    namesrv = ["namesrv", "--port", str(base), "--set", f"kvConfigPath={tmp_path}/kv.json"]
    broker = ["broker", "-c", str(conf), "-n", f"127.0.0.1:{base}", "--set", "brokerIP1=127.0.0.1"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with (
        subprocess.Popen([PROGRAM, *namesrv], **options) as first,
        subprocess.Popen([PROGRAM, *broker, "--set", "mappedFileSizeCommitLog=1048576"], **options) as second,
    ):
        assert ready_line(first) == f"ready namesrv=0.0.0.0:{base}\n"
        assert ready_line(second) == f"ready broker=broker-a-0 address=127.0.0.1:{base + 11}\n"
        listed = run("list", "-n", f"127.0.0.1:{base}", "-o", "tsv").stdout.splitlines()
        assert listed[1].split("\t")[:4] == ["broker-a-0", f"127.0.0.1:{base + 11}", "master", "serving"]
        for process in (second, first):
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_a_broker_may_open_as_many_files_as_the_system_lets_it(tmp_path):
    base = free_port_base()
    command = [PROGRAM, "broker", "--set", f"listenPort={base + 11}", "--set", f"storePathRootDir={tmp_path}/store"]
    command += ["--set", "mappedFileSizeCommitLog=1048576", "--set", "bindAddress=127.0.0.1"]
    shell = f"ulimit -S -n 256; exec {' '.join(command)}"
    with subprocess.Popen(
        ["bash", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert ready_line(broker).startswith("ready broker=")
        with open(f"/proc/{broker.pid}/limits") as limits:
            (line,) = [line for line in limits if line.startswith("Max open files")]
        soft, hard = line.split()[3:5]
        broker.send_signal(signal.SIGINT)
        assert broker.wait(20) == 0
    assert soft == hard


def test_p_prints_the_configuration_in_force_and_where_each_value_is_from(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    done = run("broker", "-c", str(conf), "-n", "ns:9876", "--set", "slaveTimeout=1", "-p")
    assert done.returncode == 0
    values = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert values["brokerRole"] == ["SYNC_MASTER", f"{conf}:8"]
    assert values["namesrvAddr"] == ["ns:9876", "--namesrv"]
    assert values["slaveTimeout"] == ["1", "--set"]
    assert values["listenPort"] == ["10911", "default"]
    assert "note: no effect here: " in done.stderr
    assert "sendMessageThreadPoolNums" in done.stderr
    assert "warning" not in done.stderr


def test_an_unknown_key_is_a_warning_with_the_nearest_name(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRol=SLAVE\n")
    done = run("broker", "-c", str(conf), "-p")
    assert done.returncode == 0
    assert f"warning: {conf}:1: unknown key brokerRol; did you mean brokerRole?" in done.stderr


@pytest.mark.parametrize(
    ("kind", "line", "allowed"),
    [
        ("broker", "brokerRole=BOSS", "ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("broker", "listenPort=eleven", "a whole number"),
        ("namesrv", "listenPort=99999", "a number >= 0 and <= 65535"),
    ],
)
def test_a_bad_value_ends_the_start_with_status_2(tmp_path, kind, line, allowed):
    conf = tmp_path / "x.conf"
    conf.write_text(f"\n{line}\n")
    done = run(kind, "-c", str(conf))
    assert done.returncode == 2
    assert done.stderr == f"Error: {conf}:2: {line}: expected {allowed}\n"


def test_bit_maps_of_filters_are_refused_with_the_reason(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("enableCalcFilterBitMap=true\n")
    done = run("broker", "-c", str(conf))
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"Error: {conf}:1: enableCalcFilterBitMap=true: expected false: twinlog has no bit maps"
    )
    assert done.stderr.endswith("Remove the line, or set it to false\n")
    conf.write_text("enableCalcFilterBitMap=false\n")
    done = run("broker", "-c", str(conf), "-p")
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_there_has_status_3():
    done = run("list", "-n", "127.0.0.1:1")
    assert done.returncode == 3
    assert done.stderr.startswith("Error: The name server cannot be reached.\n")
    assert "twinlog up" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("list", "--help"), ("up", "--help"), ("consume", "--help"), ("log", "dump", "--help")]
)
def test_help_ends_with_examples_and_comes_quickly(arguments):
    used = []
    for _ in range(3):  # What runs beside it takes its caches: the least of three is its own.
        before = os.times()
        done = run(*arguments)
        after = os.times()
        assert "Examples:" in done.stdout
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(used) < 0.5, f"{used} s of processor time"

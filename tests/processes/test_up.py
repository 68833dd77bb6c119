"""`twinlog up`: one command is a cluster, and leaves nothing behind."""

import json
import os
import signal
import socket
import subprocess
import time

import psutil
import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, free_port_base, gone, run, running
from tests.support.waiting import SECONDS_MAX, wait_for
from twinlog.cluster.cli.run.pinning import own_cores

pytestmark = pytest.mark.timeout(180)
MEMBERS = ["broker-a-0", "broker-a-1"]


@pytest.mark.quick
def test_one_command_is_a_cluster_that_takes_and_gives_messages(up):
    assert [(m["name"], m["role"], m["state"]) for m in up.members()] == [
        ("broker-a-0", "master", "serving"),
        ("broker-a-1", "slave", "streaming"),
    ]
    assert up.twinlog("send", "orders", "hello", "--tags", "A").startswith("SEND_OK  orders  broker-a")
    assert "hello" in up.twinlog("consume", "orders")
    assert "orders" in up.twinlog("topic", "list")
    master, slave = up.members()
    assert master["written_offset"] == slave["written_offset"] == slave["confirmed_offset"] > 0


def test_ctrl_c_ends_a_reader_and_keeps_the_groups_place(up):
    """Ctrl-C is how one leaves --follow: no failure, and what was printed counts as read."""
    up.twinlog("send", "orders", "x", "--count", "3")
    command = [PROGRAM, "consume", "orders", "-n", up.namesrv, "--group", "g", "--follow", "-o", "json"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        for _ in range(3):
            reader.stdout.readline()
        reader.send_signal(signal.SIGINT)
        assert reader.wait(SECONDS_MAX) == 0
        assert reader.stderr.read() == ""
    assert up.twinlog("consume", "orders", "--group", "g") == ""


def test_a_pipe_that_closes_is_no_failure(up):
    up.twinlog("send", "orders", "x" * 1000, "--count", "300")
    shell = f"set -o pipefail; {PROGRAM} consume orders -n {up.namesrv} | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_each_member_has_its_directory_its_file_and_its_log(up):
    for name in MEMBERS:
        assert (up.directory / name / "lock").is_file()
        assert "Written by `twinlog up`" in (up.directory / "conf" / f"{name}.conf").read_text()
        assert "registered" in (up.directory / "logs" / f"{name}.log").read_text()
    assert "ready namesrv=" in (up.directory / "logs" / "namesrv.log").read_text()


def test_changes_are_told_one_line_each(up):
    wait_for(lambda: "broker-a-1  slave  streaming  offset 0  lag 0 B" in up.stderr, "the slave's line")
    assert "broker-a-0  master  serving  offset 0" in up.stderr


@pytest.mark.quick
def test_ctrl_c_stops_all_cleanly_and_the_data_stays(tmp_path):
    with running(tmp_path / "data") as up:
        up.wait_ready()
        up.twinlog("send", "orders", "kept")
        children = up.children()
        assert up.stop(signal.SIGINT) == 0
        assert gone(children)
        assert up.stderr.rstrip().endswith("stopped")
        assert "waiting for" not in up.stderr
        assert not (up.directory / "broker-a-0" / "abort").exists()
        assert not (up.directory / "broker-a-1" / "abort").exists()
    with running(tmp_path / "data") as up:
        up.wait_ready()
        assert "kept" in up.twinlog("consume", "orders")


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    with running(tmp_path / "data") as up:
        up.wait_ready()
        children = up.children()
        for child in children:
            child.suspend()  # Nobody can stop cleanly now.
        up.process.send_signal(signal.SIGINT)
        wait_for(lambda: "stopping" in up.stderr, "the first one to be heard")
        began = time.monotonic()
        assert up.stop(signal.SIGINT) == 128 + signal.SIGINT
        assert time.monotonic() - began < 2
        wait_for(lambda: gone(children), "the end of all children")


def test_children_end_with_a_supervisor_that_is_killed(tmp_path):
    with running(tmp_path / "data") as up:
        up.wait_ready()
        children = up.children()
        up.process.kill()
        up.process.wait()
        wait_for(lambda: gone(children), "the end of all children")
        assert not (up.directory / "broker-a-0" / "abort").exists()  # Cleanly, even then.


@pytest.mark.parametrize("name", ["broker-a-1", "namesrv"])
def test_a_child_that_dies_is_reported_and_started_again(up, name):
    first = up.member(name)
    first.kill()
    wait_for(lambda: f"{name} was ended by SIGKILL; it restarts in 0.5 s" in up.stderr, "the report")
    assert "  | " in up.stderr  # Its last lines.
    wait_for(lambda: f"{name} was restarted" in up.stderr, "the new start")
    assert up.member(name).pid != first.pid
    wait_for(lambda: _serves(up), "everybody to be back")
    wait_for(lambda: up.twinlog("send", "orders", "after").startswith("SEND_OK"), "the slave to count again")


def _serves(up) -> bool:
    done = run("list", "-o", "tsv", namesrv=up.namesrv)
    return done.returncode == 0 and [line.split("\t")[3] for line in done.stdout.splitlines()[1:]] == [
        "serving",
        "streaming",
    ]


def test_a_busy_port_is_named_with_the_process_that_holds_it(tmp_path):
    base = free_port_base()
    with socket.create_server(("127.0.0.1", base + 22)):
        done = run("up", "--dir", str(tmp_path), "--port-base", str(base), *SMALL)
    assert done.returncode == 1
    name = psutil.Process().name()
    assert f"Port {base + 22} (broker-a-1's HA port) is in use by process {os.getpid()} ({name})." in done.stderr
    assert "--port-base" in done.stderr
    assert done.stdout == ""


def test_one_directory_is_for_one_cluster(up):
    done = run("up", "--dir", str(up.directory), "--port-base", str(free_port_base()))
    assert done.returncode == 1
    assert f"Another `twinlog up` runs on {up.directory}." in done.stderr
    assert f"Process {up.process.pid} holds" in done.stderr


def test_a_value_that_cannot_be_ends_it_with_status_2(tmp_path):
    done = run("up", "--dir", str(tmp_path), "--port-base", str(free_port_base()), "--set", "flushDiskType=SOMETIMES")
    assert done.returncode == 2
    assert done.stderr == "Error: --set: flushDiskType=SOMETIMES: expected ASYNC_FLUSH or SYNC_FLUSH\n"


def test_masters_slaves_async_and_set(tmp_path):
    base = free_port_base(brokers=6)
    arguments = ("--masters", "2", "--slaves", "2", "--async", "--set", "brokerClusterName=Test")
    with running(tmp_path / "data", *arguments, port_base=base) as up:
        up.wait_ready()
        members = up.members()
    assert [m["name"] for m in members] == [f"broker-{group}-{number}" for group in "ab" for number in range(3)]
    assert [m["address"] for m in members] == [f"127.0.0.1:{base + 11 + 10 * k}" for k in range(6)]
    assert {m["cluster"] for m in members} == {"Test"}
    assert {m["state"] for m in members} == {"serving", "streaming"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_pin_binds_each_broker_with_its_threads_to_a_core_also_after_a_restart(tmp_path):
    own = os.sched_getaffinity(0)
    first, second, *_ = own_cores()
    with running(tmp_path / "data", "--pin") as up:
        up.wait_ready()
        wait_for(lambda: f"broker-a-1  slave  streaming  core {second}" in up.stderr, "the slave's line")
        assert f"broker-a-0  master  serving  core {first}" in up.stderr
        assert cores_of(up.member("broker-a-0")) == {first}
        assert cores_of(up.member("broker-a-1")) == {second}
        assert cores_of(up.member("namesrv")) == own
        up.member("broker-a-1").kill()
        wait_for(lambda: "broker-a-1 was restarted" in up.stderr, "the new start")
        assert cores_of(up.member("broker-a-1")) == {second}
        assert os.sched_getaffinity(up.process.pid) == own


def cores_of(process: psutil.Process) -> set[int]:
    """Of all its threads."""
    return set().union(*(os.sched_getaffinity(thread.id) for thread in process.threads()))


def test_a_group_of_three_elects_by_itself_but_a_master_that_is_back_in_time_stays_master(tmp_path):
    """Also in a directory of an older version: its records say nothing of who begins a failover, as those of autoFailover=off."""
    base = free_port_base(brokers=3)
    with running(tmp_path / "data", "--slaves", "2", "--set", "autoFailover=off", port_base=base) as up:
        up.wait_ready()
        assert modes_of(up) == {"off"}
        assert "elects another one by itself" not in up.stderr
    patience = (
        "--set",
        "autoFailoverRestartMs=20000",
        "--set",
        "autoFailoverAfterMs=20000",
    )  # This machine may be busy.
    with running(tmp_path / "data", "--slaves", "2", *patience, port_base=base) as up:
        up.wait_ready()
        wait_for(lambda: modes_of(up) == {"members"}, "the mode in all records")
        assert "elects another one by itself" in up.stderr
        up.member("broker-a-0").kill()
        wait_for(lambda: "broker-a-0 was restarted" in up.stderr, "the new start")
        wait_for(lambda: up.members()[0]["state"] == "serving", "the master is back")
        assert [(each["role"], each["epoch"]) for each in up.members()] == [("master", 0), ("slave", 0), ("slave", 0)]
        assert up.twinlog("send", "orders", "after").startswith("SEND_OK")


def modes_of(up) -> set[str]:
    """Who begins a failover, by the members' records."""
    return {*json.loads(up.twinlog("auto-failover", "-o", "json"))["members"].values()}


def test_members_know_each_other_by_a_secret_that_is_changed_while_they_run(tmp_path):
    with running(tmp_path / "data") as up:
        up.wait_ready()
        file = up.directory / "group-secret"
        assert file.stat().st_mode & 0o777 == 0o600
        for step in ("show", "add", "use", "drop"):
            ids = json.loads(up.twinlog("group", "secret", step, str(file), "-o", "json"))["accepted"]
            wait_for(lambda ids=ids: [member["secret_ids"] for member in up.members()] == [ids, ids], step)
            assert up.twinlog("send", "orders", step).startswith("SEND_OK")
        up.twinlog("switchover", "--yes")  # Votes are signed with the new one.
        up.twinlog("wait", "healthy", "broker-a-0=streaming")
        assert up.stop() == 0
    file.unlink()  # Of a cluster that an older twinlog made, there is none yet.
    with running(tmp_path / "data", port_base=up.port_base) as up:
        up.wait_ready()
        assert [len(member["secret_ids"]) for member in up.members()] == [1, 1]
        assert "no group secret" not in up.twinlog("check", "-o", "json")


def test_a_secret_that_cannot_be_used_ends_it_with_status_2(tmp_path):
    """Before anything runs; a broker of its own says the same."""
    (tmp_path / "group-secret").write_text("oh\n")
    (tmp_path / "group-secret").chmod(0o644)
    port = free_port_base()
    done = run("up", "--dir", str(tmp_path), "--port-base", str(port), *SMALL)
    alone = [
        f"haSecretFile={tmp_path / 'group-secret'}",
        f"storePathRootDir={tmp_path / 'store'}",
        f"listenPort={port + 11}",
    ]
    broker = run("broker", *(word for each in alone for word in ("--set", each)))
    for ended in (done, broker):
        assert (ended.returncode, ended.stdout) == (2, "")
        assert (
            f"group-secret has mode 0644: others than its owner may read or change it.\n  chmod 600 {tmp_path}"
            in ended.stderr
        )
    assert not (tmp_path / "broker-a-0").exists()


def test_sigterm_is_as_good_as_ctrl_c(tmp_path):
    with running(tmp_path / "data") as up:
        up.wait_ready()
        assert up.stop(signal.SIGTERM) == 0
        assert up.stderr.rstrip().endswith("stopped")

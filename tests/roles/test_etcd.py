"""Groups that keep their record in a real etcd: real processes, real deaths."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.process_group.etcd import DEBIAN, EtcdCluster
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(DEBIAN.missing), reason=DEBIAN.missing),
]
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "haMaxTimeSlaveNotCatchup": "3000",
    "autoFailoverAfterMs": "3000",
    "haLeaseMs": "1500",
}


@contextmanager
def kept(directory: Path, count: int = 2, etcds: int = 1, **settings: str) -> Iterator[tuple[Group, EtcdCluster]]:
    """A group that runs, and hands its record to etcd by a command."""
    with EtcdCluster(directory / "etcd", etcds) as cluster:
        endpoints = ";".join(cluster.endpoints)
        with running(directory, count, **{**SETTINGS, "etcdEndpoints": endpoints, **settings}) as group:
            wait_for(lambda: all(etcd_of(each)["why"] is None for each in group.members), "every member sees etcd")
            group.twinlog("auto-failover", "etcd")
            wait_for(lambda: names(group, cluster) == {each.label for each in group.members}, "the record in etcd")
            group.twinlog("send", TOPIC, "first")
            yield group, cluster


def etcd_of(member: RoleBroker) -> dict:
    """What a member tells of etcd."""
    return status(member)["etcd"]


def record(cluster: EtcdCluster) -> dict:
    """As etcdctl shows it to a person."""
    told = cluster.ctl("get", "--prefix", "/twinlog/", "--print-value-only").splitlines()
    return next(json.loads(line) for line in told if line.startswith("{"))["record"]


def names(group: Group, cluster: EtcdCluster) -> set[str]:
    """Of those in sync."""
    found = record(cluster)
    labels = {each["id"]: each["name"] for each in found["members"]}
    return {labels[id] for id in found["inSync"]}


def is_sent(group: Group) -> bool:
    return group.twinlog("send", TOPIC, "x", status=None).returncode == 0


async def test_a_pair_loses_one_after_the_other_and_no_message(tmp_path):
    """The slave dies, the master goes on alone; the slave is back, the master dies, the slave goes on alone."""
    with kept(tmp_path) as (group, cluster):
        first, second = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            second.kill()
            await traffic.more(20)
            assert names(group, cluster) == {first.label}
            assert status(first)["policy"]["level"] == "L1 sync flush, one copy"
            second.start()
            wait_for(lambda: names(group, cluster) == {first.label, second.label}, "the slave is back in the set")
            await traffic.more(20)
            first.kill()
            began = time.monotonic()
            await traffic.more(5)
            print(f"the next acknowledgement came {time.monotonic() - began:.1f} s after kill -9")
            wait_for(lambda: names(group, cluster) == {second.label}, "the dead master leaves the set")
            await traffic.more(20)
            first.start()
            wait_for(lambda: names(group, cluster) == {first.label, second.label}, "the old master is back in the set")
            await traffic.more(5)
        found = {body for body, _ in await traffic.consumed()}
        assert traffic.acknowledged.keys() <= found


def test_an_outage_of_etcd_demotes_nobody(tmp_path):
    with kept(tmp_path, etcds=1) as (group, cluster):
        cluster.kill()
        first, second = group.members
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            assert is_sent(group)
            time.sleep(0.5)
        assert "no connection" in etcd_of(first)["why"]
        assert group.master() is first
        cluster.start()
        wait_for(lambda: etcd_of(first)["why"] is None, "etcd answers again")
        second.kill()
        wait_for(lambda: names(group, cluster) == {first.label}, "the set shrinks")


@pytest.mark.long
def test_a_hung_master_of_a_pair_is_replaced(tmp_path):
    with kept(tmp_path) as (group, cluster):
        first, second = group.members
        first.send_signal(signal.SIGSTOP)
        wait_for(lambda: status(second)["roleState"] == "serving", "another master", timeout_s=20)
        wait_for(lambda: names(group, cluster) == {second.label}, "the set shrinks")
        assert is_sent(group)
        first.send_signal(signal.SIGCONT)
        wait_for(lambda: names(group, cluster) == {first.label, second.label}, "the old master is back in the set")

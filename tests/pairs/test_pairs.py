"""Real slaves of our master, and our slaves of real masters, RocketMQ 4.9.7 and 5.3.3: full history, restarts of either
side in traffic, and in the end the same bytes and the same queues.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import jars, rocketmq, twinlog
from tests.interop.java_client import JavaClient
from tests.pairs.group import FILE_SIZE, Group, at_once

HISTORY_FILES = 3


@pytest.fixture
def client(root: Path) -> Iterator[JavaClient]:
    with JavaClient(root / "client") as client:
        yield client


def play(groups: Sequence[Group], client: JavaClient) -> None:
    """Empty slaves join masters with a history; then each side stops and dies once, in traffic. The masters run."""
    masters = [group.master for group in groups]
    slaves = [slave for group in groups for slave in group.slaves]
    for group in groups:
        group.connect(client)
        group.fill(files=HISTORY_FILES)
    at_once(slave.start for slave in slaves)
    for group in groups:
        group.wait_served()
        group.start_traffic()
    for members in (slaves, masters):
        for name in ("stop", "kill"):
            at_once(getattr(member, name) for member in members)
            at_once(member.start for member in members)
            for group in groups:
                group.wait_served()
    for group in groups:
        group.finish_traffic()


def test_real_slaves_of_our_master(root: Path, client: JavaClient) -> None:
    """Slaves of both releases at once. They find the master at our name server."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        master = stack.enter_context(twinlog.Broker(root / "master", namesrv, role="SYNC_MASTER"))
        slaves = [
            rocketmq.Broker(root / f"slave-{version}", namesrv, role="SLAVE", broker_id=number, version=version)
            for number, version in enumerate((jars.VERSION, jars.VERSION_5), 1)
        ]
        for slave in slaves:
            stack.callback(slave.__exit__, None, None, None)
        group = Group(master, slaves, "followed")
        play([group], client)
        start, end = group.assert_equal()
        assert start == 0, "an empty slave gets all files"
        assert end > 2 * HISTORY_FILES * FILE_SIZE
        assert sum(sent.ok for sent in group.told) > 1000


def test_our_slaves_of_real_masters(root: Path, client: JavaClient) -> None:
    """A master of each release, with a slave of ours each. One group meets at our name server, one at that of 5.3.3."""
    with ExitStack() as stack:
        ours = stack.enter_context(twinlog.NameServer(root / "namesrv-ours")).address
        real = stack.enter_context(rocketmq.NameServer(root / "namesrv-real", version=jars.VERSION_5)).address
        groups = []
        for version, namesrv in ((jars.VERSION, ours), (jars.VERSION_5, real)):
            name = f"broker-{version[0]}"
            master = rocketmq.Broker(
                root / f"master-{version}", namesrv, role="SYNC_MASTER", broker_name=name, version=version
            )
            slave = twinlog.Broker(root / f"slave-{version}", namesrv, role="SLAVE", broker_name=name)
            groups.append(Group(master, [slave], f"led-by-{version[0]}"))
            for member in (master, slave):
                stack.callback(member.__exit__, None, None, None)
        at_once(group.master.start for group in groups)
        play(groups, client)
        for group in groups:
            start, end = group.assert_equal()
            assert start == 0, "an empty slave gets all files"
            assert end > 2 * HISTORY_FILES * FILE_SIZE
            assert sum(sent.ok for sent in group.told) > 1000

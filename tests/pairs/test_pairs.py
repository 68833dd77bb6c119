"""Real slaves of our master, and our slaves of real masters, RocketMQ 4.9.7 and 5.3.3: full history, restarts of either
side in traffic, and in the end the same bytes and the same queues.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pairs.group import FILE_SIZE, LEVEL_S, Group, max_offset
from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.disk.compare import start_offset
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import QUICK_SLAVE, TEST_SETTINGS, BrokerProcess
from tests.support.waiting import at_once, wait_for

HISTORY_FILES = 3
SLAVE_SETTINGS = TEST_SETTINGS | QUICK_SLAVE

# What mqadmin haStatus of 5.3.3 prints, of a real broker as of ours.
MASTER_LINES = {"#MasterAddr", "#MasterCommitLogMaxOffset", "#SlaveNum", "#InSyncSlaveNum"}
SLAVE_LINES = {
    "#MasterAddr",
    "#CommitLogMaxOffset",
    "#TransferSpeed(KB/s)",
    "#LastReadTime",
    "#LastWriteTime",
    "#MasterFlushOffset",
}
SLAVE_COLUMNS = (
    "#SlaveAddr",
    "#SlaveAckOffset",
    "#Diff",
    "#TransferSpeed(KB/s)",
    "#Status",
    "#TransferFromWhere",
)
SLAVES = "slaves"


@pytest.fixture
def client(root: Path) -> Iterator[JavaClient]:
    with JavaClient(root / "client", version=jars.VERSION_5) as client:
        yield client


def ha_status(client: JavaClient, member: BrokerProcess) -> dict[str, str]:
    """What mqadmin haStatus of 5.3.3 prints of a member: values by name; of slaves the row, under the name SLAVES."""
    printed = Tool(client, member.namesrv).run("haStatus", "-b", member.address).strip()
    lines = [line.split("\t") for line in printed.splitlines()]
    values = {line[0]: line[1] for line in lines if len(line) == 2}
    rows = [line[0] for line in lines if len(line) == 1]
    return values | ({SLAVES: "\n".join(rows[1:])} if rows and rows[0].split() == list(SLAVE_COLUMNS) else {})


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
                group.fill(files=1)
    for group in groups:
        group.finish_traffic()


def check_fresh_real_slave(stack: ExitStack, master: rocketmq.Broker, client: JavaClient) -> None:
    """What RocketMQ says of a fresh slave of its own, which lacks all files but the last one: nothing is missing."""
    slave = rocketmq.Broker(
        master.root.with_name("fresh"),
        master.namesrv,
        role="SLAVE",
        broker_id=2,
        broker_name="broker-5",
        settings=SLAVE_SETTINGS,
    )
    stack.enter_context(slave)
    wait_for(lambda: max_offset(slave) == max_offset(master), "the fresh slave is level", timeout_s=LEVEL_S)
    assert start_offset(slave.commit_log) >= HISTORY_FILES * FILE_SIZE
    told = ha_status(client, master)
    assert told.keys() == {*MASTER_LINES, SLAVES}
    assert (told["#SlaveNum"], told["#InSyncSlaveNum"]) == ("2", "2")
    assert {tuple(row.split()[2:5:2]) for row in told[SLAVES].splitlines()} == {("0", "OK")}


# A class each: tests of two classes may run at once.


class TestOurMaster:
    def test_real_slaves_of_our_master(self, root: Path, client: JavaClient) -> None:
        """Slaves of both releases at once. They find the master at our name server."""
        with ExitStack() as stack:
            namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
            master = stack.enter_context(twinlog.Broker(root / "master", namesrv, role="SYNC_MASTER"))
            slaves = [
                rocketmq.Broker(
                    root / f"slave-{version}",
                    namesrv,
                    role="SLAVE",
                    broker_id=number,
                    version=version,
                    settings=SLAVE_SETTINGS,
                )
                for number, version in enumerate((jars.VERSION, jars.VERSION_5), 1)
            ]
            for slave in slaves:
                stack.callback(slave.__exit__, None, None, None)
            group = Group(master, slaves, "followed")
            play([group], client)
            start, end = group.assert_equal()
            assert start == 0, "an empty slave gets all files"
            assert end > (HISTORY_FILES + 4) * FILE_SIZE
            assert sum(sent.ok for sent in group.told) > 500

            told = ha_status(client, master)
            assert told.keys() == {*MASTER_LINES, SLAVES}
            assert (told["#SlaveNum"], told["#InSyncSlaveNum"]) == ("2", "2")
            assert told["#MasterCommitLogMaxOffset"] == str(end)
            for row in told[SLAVES].splitlines():
                _, acked, diff, _, state, _ = row.split()
                assert (acked, diff, state) == (str(end), "0", "OK")
            assert ha_status(client, slaves[1]).keys() == SLAVE_LINES


class TestRealMasters:
    def test_our_slaves_of_real_masters(self, root: Path, client: JavaClient) -> None:
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
                assert end > (HISTORY_FILES + 4) * FILE_SIZE
                assert sum(sent.ok for sent in group.told) > 500
            for group in groups:
                told = ha_status(client, group.slaves[0])
                assert told.keys() == SLAVE_LINES
                assert told["#CommitLogMaxOffset"] == str(max_offset(group.slaves[0]))
                assert told["#MasterAddr"] == f"127.0.0.1:{group.master.ha_port}"
            check_fresh_real_slave(stack, groups[1].master, client)

"""Tables that were there and are gone at a start: what is told, whom a master asks, and what it takes."""

import pytest
import trio
from structlog.testing import capture_logs

from tests.cluster.broker.helpers import make_broker
from tests.cluster.broker.slaves import FAST, MASTER
from tests.cluster.broker.slaves import slave as slave
from tests.support.group.loopback import cluster as cluster
from tests.support.group.loopback import until
from twinlog.cluster.broker.group import lost_tables
from twinlog.cluster.broker.group.lost_tables import DELAYS, GROUPS, OFFSETS, TOPICS
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.config.json_file import NAME, JsonFile, KnownTables
from twinlog.cluster.remoting import fastjson
from twinlog.store.config import BrokerRole

ALL = [TOPICS, GROUPS, OFFSETS, DELAYS]


def lose(root, *names):
    for name in names:
        for path in (root / "config" / name, root / "config" / f"{name}.bak"):
            path.unlink(missing_ok=True)


def asked_for(logs):
    return sorted(each["file"].rpartition("/")[2] for each in logs if "another member is asked for it" in each["event"])


def tables(broker):
    """All that lasts, but versions."""
    plain = (
        broker.tables.topics.to_json(),
        broker.tables.groups.to_json(),
        broker.tables.offsets.to_json(),
        broker.schedule.to_json(),
    )
    return [{name: table for name, table in each.items() if name != "dataVersion"} for each in plain]


async def change_group(cluster, broker, name, retries):
    group = SubscriptionGroupConfig(name=name, retry_times_max=retries)
    assert (await cluster.ask(broker, 200, group.to_json())).code == 0


@pytest.fixture
async def pair(cluster):
    """A master that has something in each table, of which its slave has a copy; nobody has consumed as `Unused`."""
    master, running = await cluster.start("broker-a-0")
    follower, _ = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    await cluster.send(master)
    await cluster.send(master, b"late", properties="DELAY\x011")
    await change_group(cluster, master, "Unused", 3)
    await cluster.ask(master, 15, consumerGroup="G", topic="T1", queueId=0, commitOffset=1)
    await until(lambda: master.schedule.table)
    await until(lambda: follower.store.max_offset == master.store.max_offset)
    await until(lambda: follower.slave_sync.master_address is not None)
    await follower.slave_sync.synchronize(master.address)
    assert tables(follower) == tables(master)
    await running.stop()
    return master, follower


@pytest.mark.slow
@pytest.mark.parametrize("names", [[GROUPS], [OFFSETS], [TOPICS], [DELAYS], ALL])
async def test_a_master_takes_them_from_its_slave_before_it_serves(cluster, pair, names):
    before, follower = pair
    lose(cluster.root / "broker-a-0", *names)
    with capture_logs() as logs:
        again, running = await cluster.start("broker-a-0")
        assert tables(again) == tables(before)
    assert asked_for(logs) == sorted(names)
    taken = [each for each in logs if each["event"] == "a lost table was copied from slaves"]
    assert [each["peers"] for each in taken] == [[follower.address]] * len(names)
    assert again.lost_tables.names == []
    assert all((cluster.root / "broker-a-0" / "config" / name).exists() for name in names), "it is on the disk again"
    await running.stop()


async def test_without_a_slave_it_begins_empty_and_says_so(cluster):
    broker, running = await cluster.start("broker-a-0")
    await change_group(cluster, broker, "Unused", 3)
    await running.stop()
    lose(cluster.root / "broker-a-0", GROUPS)
    with capture_logs() as logs:
        again, running = await cluster.start("broker-a-0")
    assert asked_for(logs) == [GROUPS]
    (told,) = [each for each in logs if each["event"] == "a lost table starts empty"]
    assert (told["file"].rpartition("/")[2], told["why"]) == (GROUPS, "no slave answered")
    assert "Unused" not in again.tables.groups.table
    assert again.status.member().missing_tables == (GROUPS,)
    await running.stop()


@pytest.mark.slow
async def test_a_slave_that_comes_later_is_asked_and_what_is_newer_stays(cluster, monkeypatch):
    monkeypatch.setattr(lost_tables, "LATER_SECONDS", 0.002)
    monkeypatch.setattr(lost_tables, "START_SECONDS_MAX", 0.5)
    master, running = await cluster.start("broker-a-0")
    follower, following = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    for _ in range(3):
        await cluster.send(master)
    await change_group(cluster, master, "Unused", 3)
    await change_group(cluster, master, "Other", 3)
    await cluster.ask(master, 15, consumerGroup="G", topic="T1", queueId=0, commitOffset=3)
    await cluster.ask(master, 15, consumerGroup="H", topic="T1", queueId=0, commitOffset=2)
    await until(lambda: follower.store.max_offset == master.store.max_offset)
    await until(lambda: follower.slave_sync.master_address is not None)
    await follower.slave_sync.synchronize(master.address)
    await following.stop()
    await running.stop()
    lose(cluster.root / "broker-a-0", GROUPS, OFFSETS)
    master, running = await cluster.start("broker-a-0")
    assert "Unused" not in master.tables.groups.table
    await change_group(cluster, master, "Other", 7)
    await cluster.ask(master, 15, consumerGroup="G", topic="T1", queueId=0, commitOffset=1)
    follower, following = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    await until(lambda: not master.lost_tables.names, 20)
    assert {name: master.tables.groups.table[name].retry_times_max for name in ("Unused", "Other")} == {
        "Unused": 3,
        "Other": 7,
    }
    assert master.tables.offsets.table == {"T1@G": {0: 1}, "T1@H": {0: 2}}
    await until(lambda: follower.tables.groups.table == master.tables.groups.table, 20)
    await following.stop()
    await running.stop()


async def test_a_slaves_own_come_from_its_master(cluster, monkeypatch):
    monkeypatch.setattr(lost_tables, "LATER_SECONDS", 0.1)
    master, running = await cluster.start("broker-a-0")
    follower, following = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    await cluster.send(master)
    await change_group(cluster, master, "Unused", 3)
    await until(lambda: follower.slave_sync.master_address is not None)
    await follower.slave_sync.synchronize(master.address)
    await following.stop()
    lose(cluster.root / "broker-a-1", GROUPS, TOPICS)
    with capture_logs() as logs:
        again, following = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    assert asked_for(logs) == [GROUPS, TOPICS]
    assert {each["asked"] for each in logs if "asked" in each} == {"the master"}
    await until(lambda: tables(again) == tables(master) and not again.lost_tables.names)
    await following.stop()
    await running.stop()


async def test_a_store_without_the_note_starts_as_ever(cluster, pair):
    """One of RocketMQ's, or a backup."""
    root = cluster.root / "broker-a-0"
    lose(root, GROUPS)
    (root / "twinlog" / NAME).unlink()
    with capture_logs() as logs:
        again, running = await cluster.start("broker-a-0")
    assert asked_for(logs) == []
    assert "Unused" not in again.tables.groups.table
    assert KnownTables(root / "twinlog").directory.joinpath(NAME).exists(), "what is there is noted from now on"
    await running.stop()


def test_the_note(tmp_path):
    known = KnownTables(tmp_path / "twinlog")
    known.load()
    file, empty = JsonFile(tmp_path / "a.json", known), JsonFile(tmp_path / "b.json", known)
    file.save_table({"dataVersion": {"counter": 1}, "table": {"x": 1}})
    empty.save_table({"dataVersion": {"counter": 1}, "table": {}})
    empty.save("{}", is_empty=True)
    again = KnownTables(tmp_path / "twinlog")
    again.load()
    assert again.names == {"a.json"}
    assert (tmp_path / "twinlog" / NAME).read_bytes().startswith(b"twinlog-tables 1 ")


@pytest.mark.parametrize("raw", [b"", b"twinlog-tables 1 00000000\n[]\n", b"twinlog-tables 2 00000000\n[]\n", b"\xff"])
def test_a_note_that_cannot_be_read_counts_as_none(tmp_path, raw):
    (tmp_path / NAME).write_bytes(raw)
    known = KnownTables(tmp_path)
    with capture_logs() as logs:
        known.load()
    assert known.names == frozenset()
    assert [each["event"] for each in logs] == ["a side file is not used"]
    known.note("a.json")
    again = KnownTables(tmp_path)
    again.load()
    assert again.names == {"a.json"}


def test_what_was_committed_here_is_never_replaced():
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, 3)
    offsets.fill({"T@G": {0: 9, 1: 5}, "T@H": {0: 4}})
    assert offsets.table == {"T@G": {0: 3, 1: 5}, "T@H": {0: 4}}


def test_a_group_that_was_changed_here_since_is_newer():
    lost, built_in = SubscriptionGroupManager(lambda: 7), SubscriptionGroupManager(lambda: 7).table
    copy = SubscriptionGroupManager(lambda: 5)
    system = next(iter(built_in))
    for name in ("A", "B", system):
        copy.update(SubscriptionGroupConfig(name=name, retry_times_max=2))
    lost.fill(copy.to_json(), built_in)
    assert (lost.table, lost.version) == (copy.table, copy.version)
    lost = SubscriptionGroupManager(lambda: 7)
    lost.update(SubscriptionGroupConfig(name="A", retry_times_max=9))
    lost.fill(copy.to_json(), built_in)
    assert {name: lost.table[name].retry_times_max for name in ("A", "B", system)} == {"A": 9, "B": 2, system: 2}
    assert lost.version.counter > copy.version.counter, "slaves take it"


async def test_a_slave_keeps_its_copy_of_what_its_master_lost(slave):
    """Also when there is a new entry in the master's already; what the master has deleted is deleted here, too."""
    sync, client = slave.slave_sync, slave.slave_sync.client
    await sync.synchronize(MASTER)
    groups, topics = dict(slave.tables.groups.table), dict(slave.tables.topics.table)
    lost = {"dataVersion": {"counter": 1, "timestamp": 99}, "isLost": True}
    client.bodies[MASTER, 201] = fastjson.dumps({**lost, "subscriptionGroupTable": {"CG2": {}}})
    client.bodies[FAST, 21] = fastjson.dumps({**lost, "topicConfigTable": {}})
    with capture_logs() as logs:
        await sync.synchronize(MASTER)
        await sync.synchronize(MASTER)
    assert (slave.tables.groups.table, slave.tables.topics.table) == (groups, topics)
    assert [each["what"] for each in logs if "is kept" in each["event"]] == ["topics", "subscription groups"]
    handed_over = ({**lost, "topicConfigTable": {}}, {**lost, "subscriptionGroupTable": {}})
    await sync.take({"offsetTable": {}}, *handed_over)
    assert (slave.tables.groups.table, slave.tables.topics.table) == (groups, topics)
    client.bodies[MASTER, 201] = fastjson.dumps({**lost, "subscriptionGroupTable": {"CG1": {}, "CG2": {}}})
    await sync.synchronize(MASTER)
    assert slave.tables.groups.table.keys() == {"CG1", "CG2"}, "nothing is lost by taking it"
    client.bodies[MASTER, 201] = fastjson.dumps({"dataVersion": {"counter": 2}, "subscriptionGroupTable": {}})
    await sync.synchronize(MASTER)
    assert slave.tables.groups.table == {}


async def test_a_slave_that_does_not_answer_is_not_waited_for_long(cluster, monkeypatch):
    monkeypatch.setattr(lost_tables, "START_SECONDS_MAX", 0.3)
    broker, running = await cluster.start("broker-a-0")
    await change_group(cluster, broker, "Unused", 3)
    await running.stop()
    lose(cluster.root / "broker-a-0", GROUPS)
    silent = make_broker(cluster.root / "broker-a-0", listen_port=cluster.ports["broker-a-0"])
    silent.registration.slave_addresses = {"127.0.0.1:1"}
    silent.load_tables()
    began = trio.current_time()
    cluster.nursery.start_soon(silent.remoting.run)
    await silent.lost_tables.take_at_start()
    assert 0.3 <= trio.current_time() - began < 5
    assert silent.lost_tables.names == [GROUPS]

"""Brokers whose role changes while they run: what a role means for their services. No network: logs are copied by hand."""

import contextlib
import socket

import pytest
import trio
from attrs import evolve

from tests.cluster.broker.helpers import Client, heartbeat, make_broker, put
from tests.cluster.broker.role_states import ASYNC, RECORD, SLAVE, SYNC, B, state
from tests.helpers import log_bytes, replicate
from twinlog.cluster.broker.broker import FIND_MASTER_SECONDS_MAX
from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.broker.peers.role_messages import PausedMaster
from twinlog.cluster.broker.roles.effects import STARTS
from twinlog.cluster.broker.tables.offsets import MasterOffsets
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.cluster.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import FIRST, EpochId
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.role_file import save_role
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.sync import make_directory


def as_master(broker, epoch=1) -> PeerHistory:
    return PeerHistory(
        id=EpochId(epoch, broker.address),
        entries=(FIRST,),
        promised=EpochId(epoch, broker.address),
        role=ASYNC,
        group=RECORD,
        min_offset=0,
        max_offset=broker.store.max_offset,
        boot_ms=1,
        address=broker.address,
        ha_address=broker.settings.ha_address,
    )


@contextlib.asynccontextmanager
async def running(*brokers):
    """Their stores, and the tasks of their roles, which are the configured ones."""
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            broker.store.load()
            await nursery.start(broker.store.run)
            await nursery.start(broker.role_services.tasks.run)
            await broker.role_services.begin(None)
        yield
        nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        for broker in brokers:
            await broker.store.close()


@pytest.fixture
async def pair(tmp_path):
    a = make_broker(tmp_path / "a", role=ASYNC)
    b = make_broker(tmp_path / "b", role=SLAVE, listen_port=10921)
    async with running(a, b):
        yield a, b


def follow(slave, master) -> None:
    """What replication does."""
    replicate(slave.store, log_bytes(master.store)[slave.store.max_offset :])


async def switch_over(a, b, epoch=2) -> PausedMaster:
    """In the order of the steps of a switchover, what they do to the services."""
    held = from_plain(PausedMaster, to_plain(await a.role_services.hold(trio.current_time() + 2)))
    follow(b, a)
    assert b.store.max_offset == held.end_offset
    await b.role_services.take_tables(held)
    await a.role_services.fence("it has resigned")
    await b.role_services.serve_as_master(state(epoch=epoch, winner=b.address))
    await a.role_services.serve_as_slave(state(SLAVE, 1, epoch, b.address), as_master(b, epoch))
    return held


def stored(broker) -> PutStatus:
    return put(broker).status


async def test_a_switchover_moves_what_a_master_does(autojump_clock, pair):
    a, b = pair
    assert (stored(a), stored(b)) == (PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE)
    assert (a.role_services.tasks.role, b.role_services.tasks.role) == ("master", "slave")
    await switch_over(a, b)
    assert (stored(a), stored(b)) == (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.PUT_OK)
    assert (a.role_services.tasks.role, b.role_services.tasks.role) == ("slave", "master")
    assert (a.config.broker_id, b.config.broker_id) == (1, 0)
    assert (a.registration.settings.config.broker_id, a.registration.is_slave) == (1, True)
    assert (b.registration.settings.config.broker_id, b.registration.is_slave) == (0, False)
    assert a.gate.state == "holding", "nobody confirms anything before the log is followed"
    await trio.sleep(0.5)
    assert a.gate.state == "forwarding", "clients do not know it yet"
    assert b.gate.state == "open"
    assert a.group.master == Master(b.address, b.settings.ha_address)
    assert a.slave_sync.master_address == b.address
    assert a.ha.client.master_address == b.settings.ha_address
    assert a.tables.topics.version != b.tables.topics.version, "name servers and slaves take it anew"


async def test_queue_offsets_go_on_and_back_again(autojump_clock, pair):
    """Ten switchovers: no number twice, none left out."""
    a, b = pair
    for number in range(10):
        master, slave = (a, b) if number % 2 == 0 else (b, a)
        for _ in range(3):
            assert stored(master) is PutStatus.PUT_OK
        await switch_over(master, slave, epoch=number + 2)
    follow(b, a)
    assert log_bytes(a.store) == log_bytes(b.store)
    for broker in pair:
        assert broker.store.queue("T1", 0).max_offset == 30


async def test_what_is_held_is_final(autojump_clock, pair):
    """Delivery of delayed messages and transaction checks have ended before the answer leaves."""
    a, _ = pair
    put(a, SCHEDULE_TOPIC, properties={"REAL_TOPIC": "T1", "REAL_QID": "0"}, tags_code=0)
    held = await a.role_services.hold(trio.current_time() + 60)
    await trio.sleep(3)
    assert a.store.max_offset == held.end_offset
    assert held.delay_offsets == dict(a.schedule.positions)
    a.role_services.release()
    await trio.sleep(5)
    assert a.store.queue("T1", 0).max_offset == 1


async def test_a_release_lets_all_go_on_and_comes_too_late_for_one_that_resigned(autojump_clock, pair):
    a, _ = pair
    await a.role_services.hold(trio.current_time() + 2)
    assert a.gate.state == "holding"
    a.role_services.release()
    assert (a.gate.state, a.role_services.tasks.role, stored(a)) == ("open", "master", PutStatus.PUT_OK)
    await a.role_services.hold(trio.current_time() + 2)
    await a.role_services.fence("it has resigned")
    a.role_services.release()
    assert a.role_services.tasks.role is None
    assert stored(a) is PutStatus.SERVICE_NOT_AVAILABLE
    assert a.gate.state == "holding", "the new master will get what came meanwhile"


async def test_a_hold_that_slaves_do_not_confirm_fails_by_its_deadline(tmp_path, autojump_clock):
    a = make_broker(tmp_path, role=SYNC)
    async with running(a):
        put(a)
        with pytest.raises(TimeoutError):
            await a.role_services.hold(trio.current_time() + 2)
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        a.role_services.release()
        assert (a.gate.state, a.role_services.tasks.role) == ("open", "master")


async def test_a_fenced_master_serves_nobody(autojump_clock, pair):
    """Nothing is stored, by producers or by its own services, and nothing registered."""
    a, _ = pair
    put(a, SCHEDULE_TOPIC, properties={"REAL_TOPIC": "T1", "REAL_QID": "0"}, tags_code=0)
    await a.role_services.fence("somebody newer was promised")
    end = a.store.max_offset
    await trio.sleep(5)
    assert (a.store.max_offset, stored(a)) == (end, PutStatus.SERVICE_NOT_AVAILABLE)
    assert (a.gate.state, a.gate.why) == ("closed", "somebody newer was promised")
    assert a.ha.fenced == "somebody newer was promised"
    assert not await a.registration._register("192.0.2.1:9876")
    await a.role_services.serve_as_master(state(epoch=3))
    await trio.sleep(5)
    assert a.store.queue("T1", 0).max_offset == 1, "elected anew it goes on"
    assert a.gate.state == "open"


async def test_a_former_master_starts_fenced(tmp_path, autojump_clock):
    """The file says master. Before it knows that nobody else was elected it takes nothing."""
    make_directory(tmp_path / "twinlog")
    save_role(tmp_path / "twinlog", state())
    again = make_broker(tmp_path, role=SLAVE, broker_id=7)
    assert (again.is_slave, again.config.broker_id) == (False, 0), "the store's role wins"
    again.store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(again.role_services.tasks.run)
        await again.role_services.begin(state())
        assert (again.gate.state, again.gate.why) == ("closed", STARTS)
        assert stored(again) is PutStatus.SERVICE_NOT_AVAILABLE
        await again.role_services.serve_as_master(state())
        assert (again.gate.state, stored(again)) == ("open", PutStatus.PUT_OK)
        nursery.cancel_scope.cancel()
    await again.store.close()


def test_a_promoted_slave_starts_as_what_it_is(tmp_path):
    make_directory(tmp_path / "twinlog")
    save_role(tmp_path / "twinlog", state(SLAVE, 2))
    broker = make_broker(tmp_path, role=SYNC)
    assert (broker.is_slave, broker.config.broker_id, broker.registration.is_slave) == (True, 2, True)


# Delayed messages and transactions


def delayed_for(broker, count: int) -> None:
    for _ in range(count):
        put(broker, SCHEDULE_TOPIC, properties={"REAL_TOPIC": "T1", "REAL_QID": "0"}, tags_code=broker.store.now_ms())


async def test_delayed_messages_come_once_across_a_switchover(autojump_clock, pair):
    """The new master goes on exactly where the old one stopped."""
    a, b = pair
    delayed_for(a, 5)
    await trio.sleep(3)
    assert a.store.queue("T1", 0).max_offset == 5
    delayed_for(a, 3)
    held = await switch_over(a, b)
    assert held.delay_offsets == {1: 5}
    await trio.sleep(5)
    assert b.store.queue("T1", 0).max_offset == 8


async def test_after_a_failover_delivery_goes_on_where_the_master_said_last(autojump_clock, pair):
    a, b = pair
    delayed_for(a, 5)
    await trio.sleep(3)
    b.schedule.replace(dict(a.schedule.table))
    delayed_for(a, 2)
    follow(b, a)
    await b.role_services.serve_as_master(state(epoch=2, winner=B))
    await trio.sleep(5)
    assert b.store.queue("T1", 0).max_offset == 7


async def test_open_transactions_are_checked_by_the_new_master(autojump_clock, pair):
    a, b = pair
    for broker in pair:
        broker.transactions.rules = evolve(broker.transactions.rules, timeout_ms=0, reserved_ms=1 << 60)
        broker.transactions.interval_ms = 2_000
    half = {"REAL_TOPIC": "T1", "REAL_QID": "0", "PGROUP": "P", "TRAN_MSG": "true"}
    put(a, HALF_TOPIC, properties=half)
    await switch_over(a, b)
    producer = Client(b)
    producer.ask(RequestCode.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "P"}]})
    await trio.sleep(3)
    assert [command.code for command in producer.connection.sent] == [RequestCode.CHECK_TRANSACTION_STATE]


# Consumer offsets


async def test_offsets_are_handed_over(autojump_clock, pair):
    """What consumers committed last, however long ago the slave asked; what is newer here stays."""
    a, b = pair
    for _ in range(9):
        put(a)
    a.tables.offsets.commit("G", "T1", 0, 7)
    b.tables.offsets.commit("G", "T1", 1, 2)
    a.tables.offsets.commit("G", "T1", 1, 1)
    await switch_over(a, b)
    assert (b.tables.offsets.query("G", "T1", 0), b.tables.offsets.query("G", "T1", 1)) == (7, 2)
    saved = make_broker(b.store.config.root, role=SLAVE)
    saved.load_tables()
    assert saved.tables.offsets.table == b.tables.offsets.table


async def test_a_reset_just_before_the_switchover_is_not_lost(autojump_clock, pair):
    a, b = pair
    b.tables.offsets.update(b.slave_sync.master_offsets.merge({}, {"T1@G": {0: 9}}, "the first")[0])
    assert b.tables.offsets.query("G", "T1", 0) == 9
    put(a)
    a.tables.offsets.commit("G", "T1", 0, 3)
    await switch_over(a, b)
    assert b.tables.offsets.query("G", "T1", 0) == 3


async def test_topics_and_groups_are_handed_over(autojump_clock, pair):
    a, b = pair
    Client(a).ask(RequestCode.HEART_BEAT, heartbeat("T1", group="CG"))
    a.tables.topics.create_in_send_back("T9", 3)
    await switch_over(a, b)
    assert b.tables.topics.table == a.tables.topics.table
    assert "CG" in b.tables.groups.table


def test_in_a_newer_epoch_the_master_is_believed():
    """Consumers went on there; within an epoch an offset only rises, whoever restarts."""
    offsets = MasterOffsets(epoch=1)
    own = {"T1@G": {0: 9, 1: 9}}
    assert offsets.merge(own, {"T1@G": {0: 5}}, (B, 1), epoch=1)[0] == own
    assert offsets.merge(own, {"T1@G": {0: 5}}, (B, 2), epoch=2)[0] == {"T1@G": {0: 5, 1: 9}}
    assert offsets.merge(own, {"T1@G": {0: 5}}, (B, 3), epoch=2)[0] == own


async def test_a_returning_master_takes_what_consumers_committed_meanwhile(autojump_clock, pair):
    """By max, from everybody that answers; never behind the end of a queue."""
    a, _ = pair
    for _ in range(6):
        put(a)
    a.tables.offsets.commit("G", "T1", 0, 3)
    a.tables.offsets.commit("G2", "T1", 0, 4)
    answers = {B: b'{"offsetTable":{"T1@G":{0:5},"T1@G2":{0:1},"T1@G3":{0:99}}}'}
    a.role_services.client = Answering(answers)
    await a.role_services.pull_offsets((B, "127.0.0.1:1"))
    assert a.tables.offsets.table == {"T1@G": {0: 5}, "T1@G2": {0: 4}, "T1@G3": {0: 6}}
    saved = make_broker(a.store.config.root)
    saved.load_tables()
    assert saved.tables.offsets.table == a.tables.offsets.table


class Answering:
    """Stands for RemotingClient: answers 43, by address."""

    def __init__(self, bodies):
        self.bodies = bodies

    async def request(self, address, command, *, timeout_ms=3000):
        await trio.lowlevel.checkpoint()
        if address not in self.bodies or command.code != RequestCode.GET_ALL_CONSUMER_OFFSET:
            raise RemotingConnectError(address, "Connection refused")
        return RemotingCommand(0, body=self.bodies[address])


async def test_a_name_server_that_is_silent_keeps_no_new_master_from_serving(autojump_clock, nursery, tmp_path):
    """It takes the connection, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        broker = make_broker(tmp_path, namesrv_addr=f"{host}:{port}")
        await nursery.start(broker.remoting.run)
        began = trio.current_time()
        await broker.roles.rules.hear_group(broker._registered_master)
        assert broker.roles.member.is_serving
        assert 0.9 < trio.current_time() - began <= FIND_MASTER_SECONDS_MAX + 0.1

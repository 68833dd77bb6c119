"""A master that stops to be one: nobody hears that a message is safe, no slave is served, nothing of the old epoch counts."""

from contextlib import suppress

import pytest
import trio
from attrs import define
from structlog.testing import capture_logs
from trio.testing import memory_stream_pair

from tests.helpers import RecordingSink, StorePeer, log_bytes, open_store, put, replicate
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.election.voter import ALWAYS
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.master.connection import FIRST_CHECK_SECONDS_MAX
from twinlog.ha.service import HAService
from twinlog.ha.slave.client import HAClient
from twinlog.ha.wire.protocol import ACK
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import PutStatus

SLAVE = "slave"


@define(eq=False)
class Scene:
    """A master with one registered slave, which is played by hand."""

    ha: HAService
    nursery: trio.Nursery

    async def connect(self) -> trio.StapledStream:
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.ha.serve, StreamTransport(theirs), f"{SLAVE}:1", SLAVE)
        await trio.testing.wait_all_tasks_blocked()
        return ours

    async def streaming(self) -> trio.StapledStream:
        stream = await self.connect()
        await stream.send_all(ACK.pack(0))
        await trio.testing.wait_all_tasks_blocked()
        return stream

    def send(self, body: bytes = b"x") -> RecordingSink:
        """A message whose producer waits."""
        sink = RecordingSink()
        self.ha.group_transfer.wait(put(self.ha.store, body), sink, body)
        return sink

    async def ack(self, stream: trio.StapledStream) -> None:
        await stream.send_all(ACK.pack(self.ha.store.max_offset))
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def scene(nursery, tmp_path):
    store = open_store(tmp_path / "master")
    put(store, b"first")
    ha = HAService(store, HAConfig(lease_ms=3_000), lambda: (SLAVE,), lambda: None)
    ha.members_changed((SLAVE,))
    nursery.start_soon(ha.group_transfer.run)
    return Scene(ha, nursery)


async def ended(stream: trio.StapledStream, within: float = 1) -> bool:
    """Whether the other side closed it."""
    with suppress(trio.BrokenResourceError), trio.fail_after(within):
        while await stream.receive_some():
            pass
    return True


async def test_who_waits_is_refused_at_once_and_told_why(autojump_clock, scene):
    """Its message may be given up: the producer must not wait for an answer that would be a lie."""
    await scene.streaming()
    sink = scene.send()
    scene.ha.fence("it has promised epoch 5 to b:10911")
    assert [status for _, status in sink.refused] == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    assert "it has promised epoch 5 to b:10911" in sink.reasons[0]
    assert trio.current_time() < 1


async def test_who_waits_for_the_disk_alone_is_refused_too(autojump_clock, scene):
    """Slaves confirmed its message; it is heard of no more from a member that serves nobody."""
    sink = RecordingSink()
    scene.ha.store.flusher.wait(put(scene.ha.store, b"x"), sink, b"x")
    scene.ha.fence("it has promised epoch 5 to b:10911")
    assert [status for _, status in sink.refused] == [PutStatus.FLUSH_DISK_TIMEOUT]
    assert sink.reasons == ["it has promised epoch 5 to b:10911"]
    await scene.ha.store.flush()
    assert sink.answered == []


async def test_slaves_are_sent_away_and_stay_away(autojump_clock, scene):
    stream = await scene.streaming()
    scene.ha.fence("fenced by a test")
    assert await ended(stream)
    again = await scene.connect()
    assert await ended(again)
    assert scene.ha.statistics().connections == ()
    assert scene.ha.statistics().refused["fenced"] == 1
    assert scene.ha.fenced == "fenced by a test"


async def test_an_ack_that_is_in_hand_releases_nothing(autojump_clock, scene):
    """It was in the socket before the connection was told to end."""
    stream = await scene.streaming()
    sink = scene.send()
    await stream.send_all(ACK.pack(scene.ha.store.max_offset))  # Not read yet.
    scene.ha.fence("fenced by a test")
    await trio.sleep(10)
    assert sink.answered == []


async def test_an_ack_of_the_old_epoch_counts_no_more_in_the_new_one(autojump_clock, scene):
    """The slave sent it to the master of the old epoch, and has not adopted the new one's history."""
    stream = await scene.streaming()
    scene.ha.fence("fenced by a test")
    scene.ha.unfence(synchronous=True)
    with suppress(trio.BrokenResourceError):
        await stream.send_all(ACK.pack(scene.ha.store.max_offset))
    await trio.testing.wait_all_tasks_blocked()
    assert scene.ha.group_transfer.slaves == ()
    assert scene.ha.group_transfer.confirmed_offset == 0


@pytest.mark.parametrize("acks", [1, 2])
async def test_what_a_retired_connection_says_is_not_heard(autojump_clock, scene, acks):
    """Several reports in one read, and the connection retired before its task has its turn."""
    stream = await scene.streaming()
    sink = scene.send()
    await stream.send_all(ACK.pack(scene.ha.store.max_offset) * acks)
    scene.ha.end_slaves("a newer epoch")
    await trio.testing.wait_all_tasks_blocked()
    assert (sink.answered, sink.refused) == ([], [])
    assert scene.ha.group_transfer.waiting == 1


async def test_a_request_that_is_in_hand_is_not_served(autojump_clock, scene):
    stream = await scene.connect()
    await stream.send_all(ACK.pack(0))
    scene.ha.end_slaves("a newer epoch")
    assert await ended(stream)
    assert scene.ha.group_transfer.slaves == ()


async def test_a_new_epoch_serves_again(autojump_clock, scene):
    scene.ha.fence("fenced by a test")
    scene.ha.unfence(synchronous=True)
    stream = await scene.streaming()
    sink = scene.send(b"again")
    await scene.ack(stream)
    assert sink.answered == [b"again"]


async def test_without_a_lease_nothing_is_safe(autojump_clock, scene):
    """An isolated master stores, and says SEND_OK to nobody, whatever acknowledgements arrive."""
    scene.ha.lease.give_up("too few of the group's members answer")
    stream = await scene.streaming()
    sink = scene.send()
    await scene.ack(stream)
    assert sink.answered == []
    await trio.sleep(5)
    assert [status for _, status in sink.refused] == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    assert "no lease: too few of the group's members answer" in sink.reasons[0]


async def test_a_lease_runs_out_by_itself(autojump_clock, scene):
    scene.ha.lease.give_up("not granted yet")
    scene.ha.lease.grant(trio.current_time())
    stream = await scene.streaming()
    first = scene.send()
    await scene.ack(stream)
    assert first.calls == 1
    await trio.sleep(3)
    second = scene.send()
    await scene.ack(stream)
    assert second.calls == 0


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "by itself"])
async def test_who_waits_for_the_lease_only_is_answered_when_it_is_granted(autojump_clock, scene, is_told):
    scene.ha.lease.give_up("not granted yet")
    stream = await scene.streaming()
    sink = scene.send(b"waits")
    await scene.ack(stream)
    later = RecordingSink()
    scene.ha.group_transfer.wait(scene.ha.store.max_offset, later, b"comes confirmed")
    scene.ha.lease.grant(ALWAYS)
    if is_told:
        scene.ha.group_transfer.gate_opened()
    else:
        await trio.sleep(1.5)
    assert (sink.answered, later.answered) == ([b"waits"], [b"comes confirmed"])


# Leaving a master


@define(eq=False)
class Followed:
    """A master that a client follows, and what came from there."""

    master: HAService
    nursery: trio.Nursery
    connections: int = 0
    refuses: bool = False

    async def connect(self, _address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        if self.refuses:
            raise HAConnectionLostError("cannot connect: refused")
        self.connections += 1
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.master.serve, StreamTransport(theirs), f"{SLAVE}:1", SLAVE)
        return StreamTransport(ours)


async def test_a_slave_that_left_reports_nothing_more(autojump_clock, scene, nursery, tmp_path):
    """What it promises next rests on this: no acknowledgement to the old master can leave it later."""
    store = open_store(tmp_path / "slave", role=BrokerRole.SLAVE)
    followed = Followed(scene.ha, nursery)
    slave = HAService(store, HAConfig(), tuple, lambda: None, peer_of=lambda _: StorePeer(scene.ha.store))
    slave.client.connect = followed.connect
    slave.set_master("master:10912")
    nursery.start_soon(slave.client.run)
    await trio.sleep(1)
    assert slave.client.state == "streaming"
    assert log_bytes(store) == log_bytes(scene.ha.store)
    put(scene.ha.store, b"under way")
    await slave.leave_master()
    end = store.max_offset
    await trio.sleep(30)
    assert (store.max_offset, slave.client.state, followed.connections) == (end, "idle", 1)
    assert scene.ha.statistics().connections == ()

    slave.set_master("master:10912")
    await trio.sleep(1)
    assert log_bytes(store) == log_bytes(scene.ha.store)


async def test_nobody_to_leave(autojump_clock, nursery, tmp_path):
    """Before the client runs, when it follows nobody, and between two attempts."""
    store = open_store(tmp_path / "slave", role=BrokerRole.SLAVE)
    client = HAClient(store, HAConfig(), Followed(None, nursery, refuses=True).connect)
    client.set_master("master:10912")
    await client.leave()
    nursery.start_soon(client.run)
    await trio.testing.wait_all_tasks_blocked()
    await client.leave()
    client.set_master("master:10912")
    await trio.sleep(10)
    await client.leave()
    assert (client.state, client.master_address) == ("idle", None)


async def test_a_cut_is_finished_before_a_master_is_left(autojump_clock, nursery, tmp_path):
    """It cannot be called off half way, and whoever becomes master next must not meet it."""
    master, slave = open_store(tmp_path / "master"), open_store(tmp_path / "slave", role=BrokerRole.SLAVE)
    common = put(master, b"both")
    replicate(slave, log_bytes(master))
    lost = open_store(tmp_path / "lost", role=BrokerRole.SLAVE)
    replicate(lost, log_bytes(master))
    await lost.become_master(BrokerRole.SYNC_MASTER)
    put(lost, b"lost")
    replicate(slave, log_bytes(lost)[common:])
    put(master, b"kept")
    ha = HAService(slave, HAConfig(auto_resync=True), tuple, lambda: None, peer_of=lambda _: StorePeer(master))
    ha.client.connect = Followed(None, nursery, refuses=True).connect
    was_cut = trio.Event()
    slave.on_truncate.append(lambda _offset: was_cut.set())
    ha.set_master("master:10912")
    nursery.start_soon(ha.client.run)
    await was_cut.wait()
    await ha.leave_master()
    assert slave.max_offset == common
    assert not slave.flags.why_not_appendable


async def test_what_was_sent_before_a_cut_proves_nothing(autojump_clock, nursery, tmp_path):
    """A RocketMQ slave that holds bytes of the given-up end must not be taken for one that holds the new ones."""

    async def nobody(_address, _requested):
        await trio.lowlevel.checkpoint()
        return ()

    store = open_store(tmp_path / "master")
    common = put(store, b"both")
    ha = HAService(store, HAConfig(), lambda: (SLAVE,), lambda: None, find_slave=nobody)
    ha.members_changed((SLAVE,))
    scene = Scene(ha, nursery)
    put(store, *(b"given up" for _ in range(10)))
    await scene.streaming()
    ha.fence("another one is master")
    store.become_slave()
    await trio.testing.wait_all_tasks_blocked()
    await store.truncate(common, "given up")
    await store.become_master(BrokerRole.SYNC_MASTER)
    ha.unfence(synchronous=True)
    after = put(store, b"new")
    stream = await scene.connect()
    await stream.send_all(ACK.pack(after))
    with capture_logs() as lines:  # It is asked again and again before it is sent away.
        assert await ended(stream, within=FIRST_CHECK_SECONDS_MAX + 1)
    assert [each["event"] for each in lines].count("slave not served yet: no member tells whether its log is ours") == 1
    await trio.testing.wait_all_tasks_blocked()
    assert ha.statistics().refused["unproven"] == 1

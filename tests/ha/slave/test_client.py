"""How a slave keeps its connection, in virtual time: the test decides what each attempt to connect meets."""

import itertools
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import memory_stream_pair

from tests.helpers import log_bytes, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.slave.client import HAClient
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.message_store import MessageStore

Behaviour = Callable[[trio.StapledStream], Awaitable[None]]


@define(eq=False)
class Network:
    """Behaves as it is told for each attempt to connect; refuses when told nothing."""

    nursery: trio.Nursery
    behaviours: list[Behaviour] = field(factory=list)
    attempts: list[tuple[float, str]] = field(factory=list)
    otherwise: Behaviour | None = None

    async def connect(self, address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        self.attempts.append((trio.current_time(), address))
        behaviour = self.behaviours.pop(0) if self.behaviours else self.otherwise
        if behaviour is None:
            raise HAConnectionLostError("cannot connect: refused")
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(behaviour, theirs)
        return StreamTransport(ours)

    @property
    def pauses(self) -> list[float]:
        times = [at for at, _ in self.attempts]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return open_store(tmp_path / "slave", role=BrokerRole.SLAVE)


def start(
    nursery: trio.Nursery, store: MessageStore, *behaviours: Behaviour, **config: int
) -> tuple[HAClient, Network]:
    network = Network(nursery, list(behaviours))
    client = HAClient(store, HAConfig(**config), network.connect)
    client.set_master("master:10912")
    nursery.start_soon(client.run)
    return client, network


async def close_at_once(stream: trio.StapledStream) -> None:
    await stream.receive_some()
    await stream.aclose()


async def heartbeats(stream: trio.StapledStream) -> None:
    """A master that has nothing to send."""
    (offset,) = ACK.unpack(await stream.receive_some())
    with suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(BATCH_HEADER.pack(offset, 0))
            await trio.sleep(5)


async def test_the_first_retry_is_at_once_and_later_ones_wait_longer_up_to_five_seconds(autojump_clock, nursery, store):
    client, network = start(nursery, store)
    await trio.sleep(600)
    assert network.pauses[0] == 0
    assert all(0 < pause <= 5 for pause in network.pauses[1:])
    late = network.pauses[10:]
    assert 0.6 < sum(late) / len(late) < 1.4  # Jitter: anything up to 2 s.
    assert len(set(late)) > 10
    assert (client.state, client.statistics().last_error) == ("retrying", "cannot connect: refused")


async def test_all_connections_share_a_buffer(autojump_clock, nursery, store):
    """Why one ended refers to what it was arriving in, for long: a link that comes and goes took 4 MiB each time."""
    size = HAConfig().receive_buffer_size
    tracemalloc.start()
    try:
        client, network = start(nursery, store, *[misplace] * 5, heartbeats)
        await trio.sleep(60)
        assert len(network.attempts) == 6
        assert size < tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()
    assert client.state == "streaming"


async def misplace(stream: trio.StapledStream) -> None:
    """A frame that has no place in an empty log."""
    await stream.receive_some()
    await stream.send_all(BATCH_HEADER.pack(5, 10) + b"x" * 10)


async def test_repeated_failures_are_one_line(autojump_clock, nursery, store):
    with capture_logs() as lines:
        start(nursery, store)
        await trio.sleep(600)
    assert [(line["event"], line["why"]) for line in lines] == [("replication interrupted", "cannot connect: refused")]


async def test_a_connection_that_brought_something_is_replaced_at_once(autojump_clock, nursery, store, tmp_path):
    master = open_store(tmp_path / "master")
    end = put(master, b"x")

    async def give_and_leave(stream: trio.StapledStream) -> None:
        await stream.receive_some()
        await stream.send_all(BATCH_HEADER.pack(0, end) + log_bytes(master))
        await trio.sleep(100)
        await stream.aclose()

    client, network = start(nursery, store, give_and_leave, heartbeats, housekeeping_interval_ms=200_000)
    await trio.sleep(200)
    assert [at for at, _ in network.attempts] == [0, 100]
    assert client.state == "streaming"
    assert client.statistics().transferred_bytes == end == store.max_offset
    assert client.statistics().connections == 2


async def test_a_bad_master_is_not_asked_in_haste(autojump_clock, nursery, store):
    async def rubbish(stream: trio.StapledStream) -> None:
        await stream.send_all(BATCH_HEADER.pack(0, 8) + b"rubbish!")

    client, network = start(nursery, store)
    network.otherwise = rubbish
    await trio.sleep(600)
    assert len(network.attempts) < 800  # In 600 s.
    assert "bad record at offset 0" in (client.last_error or "")


async def test_a_connect_that_hangs_is_given_up(autojump_clock, nursery, store):
    client, network = start(nursery, store)

    async def hang(address: str) -> Transport:
        network.attempts.append((trio.current_time(), address))
        await trio.sleep_forever()
        raise AssertionError

    client.connect = hang
    await trio.sleep(12)
    assert network.pauses[0] == pytest.approx(5)
    assert "no answer within 5000 ms" in (client.last_error or "")


async def test_another_master_is_followed_at_once(autojump_clock, nursery, store):
    client, network = start(nursery, store, heartbeats, heartbeats)
    await trio.sleep(7)
    client.set_master("master:10912")  # The same one: the connection stays.
    await trio.sleep(7)
    client.set_master("other:10912")
    await trio.sleep(1)
    assert network.attempts == [(0, "master:10912"), (pytest.approx(14), "other:10912")]
    client.set_master(None)
    await trio.sleep(1)
    assert (client.state, client.statistics().master_address, len(network.attempts)) == ("idle", None, 2)


async def test_without_a_master_nothing_happens(autojump_clock, nursery, store):
    network = Network(nursery)
    client = HAClient(store, HAConfig(), network.connect)
    nursery.start_soon(client.run)
    await trio.sleep(1000)
    assert (client.state, network.attempts) == ("idle", [])


async def rocketmq_master_that_lacks_bytes(stream: trio.StapledStream) -> None:
    """RocketMQ 4.9: takes any first report, answers with heartbeats, closes at the second report."""
    (offset,) = ACK.unpack(await stream.receive_some())
    await stream.send_all(BATCH_HEADER.pack(offset, 0))
    await stream.receive_some()
    await stream.aclose()


@pytest.mark.parametrize("master", [close_at_once, rocketmq_master_that_lacks_bytes])
async def test_a_slave_that_is_ahead_says_so_once_and_keeps_its_bytes(autojump_clock, nursery, store, tmp_path, master):
    donor = open_store(tmp_path / "donor")
    put(donor, b"x")
    scan_all(store, donor)
    before = log_bytes(store)
    with capture_logs() as lines:
        client, network = start(nursery, store)
        network.otherwise = master
        await trio.sleep(300)
    assert client.state == "ahead"
    assert len([line for line in lines if "this slave holds bytes the master lacks" in line["why"]]) == 1
    assert len(lines) == 2
    assert log_bytes(store) == before
    assert min(network.pauses[3:]) >= 5  # It retries, but slowly.


async def test_a_slave_that_is_ahead_no_more_follows_again(autojump_clock, nursery, store, tmp_path):
    donor = open_store(tmp_path / "donor")
    put(donor, b"x")
    scan_all(store, donor)
    client, network = start(nursery, store, *[close_at_once] * 5)
    network.otherwise = heartbeats
    await trio.sleep(60)
    assert client.state == "streaming"


async def test_a_master_that_restarts_is_not_taken_for_one_that_lacks_bytes(autojump_clock, nursery, store, tmp_path):
    donor = open_store(tmp_path / "donor")
    put(donor, b"x")
    scan_all(store, donor)
    client, network = start(nursery, store, close_at_once)
    await trio.sleep(60)
    network.otherwise = heartbeats
    await trio.sleep(10)
    assert client.state == "streaming"


def scan_all(store: MessageStore, donor: MessageStore) -> None:
    store.append_replicated(memoryview(log_bytes(donor)), [])


async def test_a_full_disk_is_waited_for(autojump_clock, nursery, store, tmp_path):
    """Nothing is asked of the master meanwhile, and the slave goes on within two seconds of the disk."""
    master = open_store(tmp_path / "master")
    end = put(master, b"x")

    async def give(stream: trio.StapledStream) -> None:
        await stream.receive_some()
        await stream.send_all(BATCH_HEADER.pack(0, end) + log_bytes(master))
        await heartbeats(stream)

    store.flags.set(StoreCondition.DISK_REFUSES, "no space left on device")
    client, network = start(nursery, store, give)
    await trio.sleep(30)
    assert (client.state, network.attempts) == ("paused", [])
    assert client.last_error == "this log takes no bytes: no space left on device"
    store.flags.clear(StoreCondition.DISK_REFUSES)
    await trio.sleep(2)
    assert (client.state, store.max_offset) == ("streaming", end)


async def test_a_disk_above_a_limit_does_not_stop_a_slave(autojump_clock, nursery, store):
    store.flags.set(StoreCondition.DISK_FULL, "91 % used")
    client, _ = start(nursery, store, heartbeats)
    await trio.sleep(30)
    assert client.state == "streaming"


async def test_a_broken_disk_is_not_waited_for(autojump_clock, nursery, store):
    store.fail("EIO")
    client, network = start(nursery, store, heartbeats)
    await trio.sleep(30)
    assert (client.state, network.attempts) == ("failed", [])

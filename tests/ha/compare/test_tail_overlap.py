"""The last bytes, asked for again: compared however they arrive, and nothing is appended before all of them were equal."""

import os
from collections import deque
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.helpers import log_bytes, open_store, put, replicate
from tests.support.stream_transport import StreamTransport
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.tail_overlap import Overlap
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HADivergedError, HAError
from twinlog.ha.slave.following import overlap_of
from twinlog.ha.slave.replica import Replica
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import scan_records

FILE_SIZE = 16_384


@pytest.mark.parametrize("size", [1, 7, 500, 1000, 5000])
def test_where_it_is_cut_does_not_matter(size):
    own, more = os.urandom(1000), os.urandom(300)
    overlap = Overlap(77, own)
    data, at = own + more, 0
    while at < len(data):
        piece = memoryview(data[at : at + size])
        compared = overlap.compare(piece)
        at += compared
        if compared < len(piece):
            break
    assert (at, overlap.is_done, overlap.at) == (1000, True, overlap.end)


@pytest.mark.parametrize("size", [1, 7, 500, 1000, 5000])
@pytest.mark.parametrize("differs", [0, 1, 6, 499, 500, 998, 999])
def test_the_first_byte_that_differs_is_named(size, differs):
    own = os.urandom(1000)
    other = own[:differs] + bytes([own[differs] ^ 1]) + os.urandom(999 - differs)
    overlap = Overlap(77, own)
    pieces = [memoryview(other[at : at + size]) for at in range(0, 1000, size)]
    with pytest.raises(HADivergedError) as error:
        deque(map(overlap.compare, pieces), maxlen=0)
    assert error.value.phy_offset == 77 + differs


@pytest.fixture
def log(tmp_path: Path) -> bytes:
    """Forty messages in two files and a bit."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(store, *[os.urandom(700) for _ in range(40)])
    return log_bytes(store)


def entry_starts(log: bytes) -> list[int]:
    return [entry.phy_offset for entry in scan_records(log, 0, FILE_SIZE, check_crc=True).entries]


def slave_with(tmp_path: Path, data: bytes) -> MessageStore:
    store = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    replicate(store, data)
    return store


@pytest.mark.parametrize("count", [2, 3, 19, 20, 21, 25, 40])
@pytest.mark.parametrize("size_max", [0, 1000, 8192, 1 << 20])
async def test_it_begins_with_a_record_and_never_at_0(tmp_path, log, count, size_max):
    starts = [*entry_starts(log), len(log)]
    store = slave_with(tmp_path, log[: starts[count]])
    overlap = await overlap_of(OwnReader(store), 0, size_max)
    assert overlap is not None
    assert overlap.start in starts[1:]
    assert overlap.own == log[overlap.start : starts[count]]
    assert len(overlap.own) <= max(size_max, 2000)  # The last record at least, and the blank behind it.


async def test_a_single_record_cannot_be_asked_for_again(tmp_path, log):
    store = slave_with(tmp_path, log[: entry_starts(log)[1]])
    assert await overlap_of(OwnReader(store), 0, 1 << 20) is None


async def test_nothing_is_asked_for_that_the_master_has_deleted(tmp_path, log):
    store = slave_with(tmp_path, log)
    overlap = await overlap_of(OwnReader(store), FILE_SIZE, 1 << 20)
    assert overlap is not None
    assert overlap.start == FILE_SIZE


class Follower:
    """A replica that compares first, and the stream's other end."""

    def __init__(self, store: MessageStore, overlap: Overlap, **config: object) -> None:
        ours, self.master = memory_stream_pair()
        self.store, self.error = store, None
        self.replica = Replica(StreamTransport(ours), store, HAConfig(**config), overlap)

    async def run(self) -> None:
        try:
            await self.replica.run()
        except HAError as error:
            self.error = error

    async def reports(self) -> list[int]:
        await wait_all_tasks_blocked()
        data = await self.master.receive_some()
        return [offset for (offset,) in ACK.iter_unpack(data)]


@pytest.mark.parametrize("size", [13, 100, 1021, FILE_SIZE])
async def test_what_is_new_is_appended_behind_what_was_compared(autojump_clock, nursery, tmp_path, log, size):
    starts = entry_starts(log)
    store = slave_with(tmp_path, log[: starts[25]])
    overlap = Overlap(starts[21], log[starts[21] : starts[25]])
    follower = Follower(store, overlap)
    nursery.start_soon(follower.run)
    assert await follower.reports() == [starts[21]]
    acks, at = [], starts[21]
    while at < len(log):
        end = min(at + size, at - at % FILE_SIZE + FILE_SIZE, len(log))
        await follower.master.send_all(BATCH_HEADER.pack(at, end - at) + log[at:end])
        at = end
        await wait_all_tasks_blocked()
        if at <= overlap.end:
            assert store.max_offset == starts[25]  # Nothing is taken yet.
    with trio.move_on_after(1):
        while True:
            acks += await follower.reports()
    assert acks == sorted(acks)
    assert (acks[0] > starts[21], acks[-1]) == (True, len(log))
    assert log_bytes(store) == log
    assert follower.error is None


async def test_what_differs_is_never_followed_by_an_append(autojump_clock, nursery, tmp_path, log):
    starts = entry_starts(log)
    store = slave_with(tmp_path, log[: starts[25]])
    follower = Follower(store, Overlap(starts[21], log[starts[21] : starts[25]]))
    nursery.start_soon(follower.run)
    other = bytearray(log[starts[21] :])
    other[starts[24] - starts[21] + 60] ^= 1
    await follower.master.send_all(BATCH_HEADER.pack(starts[21], len(other)) + other)
    await wait_all_tasks_blocked()
    assert isinstance(follower.error, HADivergedError)
    assert follower.error.phy_offset == starts[24] + 60
    assert log_bytes(store) == log[: starts[25]]
    assert await follower.reports() == [starts[21]]


async def test_all_that_is_equal_is_told_at_once(autojump_clock, nursery, tmp_path, log):
    """Even when there is nothing new: the master must not think for seconds that this slave lags."""
    starts = entry_starts(log)
    store = slave_with(tmp_path, log)
    follower = Follower(store, Overlap(starts[38], log[starts[38] :]), ack_mode="flushed")
    nursery.start_soon(follower.run)
    assert await follower.reports() == [starts[38]]
    await follower.master.send_all(BATCH_HEADER.pack(starts[38], len(log) - starts[38]) + log[starts[38] :])
    assert await follower.reports() == [len(log)]
    assert trio.current_time() < 1

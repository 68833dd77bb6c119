"""haAckMode=flushed: a slave acknowledges what is on its disk, and no more. Over memory; the disk is slow where it has to be."""

from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing
from attrs import define, field

from tests.ha.replicas import FILE_SIZE, Slave
from tests.helpers import log_bytes, open_store, put
from twinlog.ha.config import AckMode, HAConfig
from twinlog.ha.errors import HALogError
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.services import flush as store_flush


@define(eq=False)
class Disk:
    """Counts syncs, and holds them back while told to."""

    syncs: int = 0
    gate: trio.Event = field(factory=trio.Event)
    under_way: int = 0

    async def sync(self, dirty: list[object], directories: object) -> None:
        self.syncs += 1
        self.under_way += 1
        assert self.under_way == 1, "two syncs at a time"
        await self.gate.wait()
        self.under_way -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    slow = Disk()
    slow.gate.set()
    monkeypatch.setattr(store_flush, "_sync", slow.sync)
    return slow


@pytest.fixture
def master(tmp_path: Path) -> MessageStore:
    return open_store(tmp_path / "master", file_size=FILE_SIZE)


@pytest.fixture
async def slave(tmp_path: Path, disk: Disk, nursery) -> AsyncIterator[Slave]:
    """A slave whose store does nothing by itself but flush."""
    store = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    nursery.start_soon(store.flusher.run)
    follower = Slave(store, HAConfig(ack_mode=AckMode.flushed))
    yield follower
    nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


async def test_an_ack_waits_for_the_disk_and_one_sync_answers_for_all_before_it(
    autojump_clock, slave, disk, master, nursery
):
    ends = [put(master, b"x" * 100) for _ in range(20)]
    log = log_bytes(master)
    nursery.start_soon(slave.run)
    assert await slave.next_report() == 0
    disk.gate, before = trio.Event(), disk.syncs
    await slave.send(0, log[: ends[0]])
    await until(lambda: disk.under_way == 1)
    for start, end in pairwise(ends):
        await slave.send(start, log[start:end])
    await until(lambda: slave.store.max_offset == ends[-1])
    with trio.move_on_after(2) as nothing:
        await slave.next_report()
    assert nothing.cancelled_caught
    disk.gate.set()
    assert [await slave.next_report(), await slave.next_report()] == [ends[0], ends[-1]]
    assert disk.syncs == before + 2


async def test_what_is_repeated_in_silence_is_what_is_on_the_disk(autojump_clock, slave, disk, master, nursery):
    end = put(master, b"x" * 100)
    nursery.start_soon(slave.run)
    assert await slave.next_report() == 0
    disk.gate = trio.Event()
    await slave.send(0, log_bytes(master))
    began = trio.current_time()
    assert await slave.next_report() == 0
    assert (slave.store.max_offset, trio.current_time() - began) == (end, pytest.approx(5, abs=0.1))
    disk.gate.set()
    assert await slave.next_report() == end


async def test_the_request_is_the_end_of_the_log_once_that_is_on_the_disk(autojump_clock, slave, disk, master, nursery):
    """A lower one would ask for bytes that are here, and a higher one would acknowledge what the disk does not have."""
    first, second = put(master, b"x" * 100), put(master, b"y" * 100)
    log = log_bytes(master)
    writer = Slave(slave.store)  # Another connection, earlier, which did not flush.
    disk.gate = trio.Event()
    nursery.start_soon(writer.run)
    assert await writer.next_report() == 0
    await writer.send(0, log[:first])
    assert await writer.next_report() == first
    flushing = Slave(slave.store, slave.config)
    nursery.start_soon(flushing.run)
    with trio.move_on_after(2) as nothing:
        await flushing.next_report()
    assert nothing.cancelled_caught
    disk.gate.set()
    assert await flushing.next_report() == first == slave.store.flusher.flushed_offset
    await flushing.send(first, log[first:])
    assert await flushing.next_report() == second


async def test_nothing_is_repeated_before_the_request(autojump_clock, slave, disk, master, nursery):
    """After a crash nothing is known to be on the disk, and to get it there takes its time: 0 would ask for the whole log."""
    end = put(master, b"x" * 100)
    nursery.start_soon(slave.run)
    assert await slave.next_report() == 0
    await slave.send(0, log_bytes(master))
    assert await slave.next_report() == end
    await trio.sleep(30)  # Until the master was silent for too long.
    slave.store.flusher.flushed_offset = 0
    slave.store.commit_log.files.files[0].flushed = 0
    disk.gate = trio.Event()
    again = Slave(slave.store, slave.config)
    nursery.start_soon(again.run)
    with trio.move_on_after(12) as nothing:
        await again.next_report()
    assert nothing.cancelled_caught
    disk.gate.set()
    assert await again.next_report() == end


async def test_a_disk_that_cannot_be_synced_is_never_acknowledged(
    autojump_clock, slave, disk, master, nursery, monkeypatch
):
    async def fail(dirty: list[object], directories: object) -> None:
        raise OSError(5, "Input/output error")

    put(master, b"x" * 100)
    nursery.start_soon(slave.run)
    assert await slave.next_report() == 0
    monkeypatch.setattr(store_flush, "_sync", fail)
    await slave.send(0, log_bytes(master))
    with trio.fail_after(60):
        await slave.ended.wait()
    assert not any(await slave.master.receive_some()), "it has acknowledged something else than 0"
    assert isinstance(slave.error, HALogError)
    again = Slave(slave.store, slave.config)
    await again.run()
    assert isinstance(again.error, HALogError)
    assert await again.master.receive_some() == b"", "a request would say that it has the bytes"

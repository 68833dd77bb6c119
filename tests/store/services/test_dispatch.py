"""Dispatch right behind an append, and by its task."""

import pytest
import trio
import trio.testing

from tests.helpers import log_bytes, open_store, put, replicate
from twinlog.store.config import BrokerRole
from twinlog.store.record.scan import scan_records
from twinlog.store.services import dispatch


@pytest.fixture
async def store(tmp_path, nursery):
    opened = open_store(tmp_path)
    await nursery.start(opened.run)
    yield opened
    nursery.cancel_scope.cancel()


def put_deferred(store, *bodies: bytes) -> None:
    store.defer_dispatch()
    for body in bodies:
        put(store, body)
        assert store.dispatched_offset < store.max_offset
    store.dispatch_deferred()


async def test_what_was_deferred_is_dispatched_in_the_same_turn(store):
    told = []
    store.on_dispatched.append(lambda: told.append(store.dispatched_offset))
    put_deferred(store, b"one", b"two")
    assert store.dispatched_offset == store.max_offset
    assert told == [store.max_offset]


async def test_without_deferring_the_task_does_it(store):
    put(store, b"one")
    assert store.dispatched_offset < store.max_offset
    await trio.testing.wait_all_tasks_blocked()
    assert store.dispatched_offset == store.max_offset


async def test_many_in_one_turn_are_gathered(store, monkeypatch):
    """As long as several come in one turn of the event loop, and at once again when they come one by one."""
    monkeypatch.setattr(dispatch, "_LEFT_TO_TASK", 4)
    told = []
    store.on_dispatched.append(lambda: told.append(store.dispatched_offset))
    for _ in range(3):
        for number in range(10):
            put_deferred(store, b"%d" % number)
        await trio.testing.wait_all_tasks_blocked()
        assert store.dispatched_offset == store.max_offset
    told.clear()
    for number in range(10):
        put_deferred(store, b"%d" % number)
    assert not told
    await trio.testing.wait_all_tasks_blocked()
    assert told == [store.max_offset]
    at_once = 0
    for number in range(8):  # One by one: the task sees that.
        told.clear()
        put_deferred(store, b"%d" % number)
        at_once += len(told)
        await trio.testing.wait_all_tasks_blocked()
    assert at_once >= 4


def test_a_blank_at_the_end_of_a_file_is_dispatched_as_well(tmp_path):
    """A slave may get it by itself: there is nothing to put into the queues, but dispatch must not seem to hang there."""
    size = 4096
    master = open_store(tmp_path / "master", file_size=size)
    while put(master, b"x" * 500) < size:
        pass
    data = log_bytes(master)
    blank = max(end for end in record_ends(data, size) if end < size)
    slave = open_store(tmp_path / "slave", file_size=size, role=BrokerRole.SLAVE)
    replicate(slave, data[:blank])
    slave.defer_dispatch()
    slave.append_replicated(memoryview(data)[blank:size], [])
    slave.dispatch_deferred()
    assert slave.dispatched_offset == slave.max_offset == size


def record_ends(data: bytes, file_size: int) -> list[int]:
    return [entry.phy_offset + entry.size for entry in scan_records(data, 0, file_size, check_crc=True).entries]


async def test_a_listener_that_fails_ends_the_store_and_not_who_appended(tmp_path):
    """A dispatch that went wrong is no fault of the connection that brought the message."""
    store = open_store(tmp_path)

    def fail(*_args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            store.on_arrival.append(fail)
            put_deferred(store, b"one")
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await use()
    assert caught.group_contains(ZeroDivisionError)

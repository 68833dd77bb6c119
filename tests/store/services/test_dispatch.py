"""Dispatch right behind an append, and by its task."""

import pytest
import trio
import trio.testing

from tests.helpers import open_store, put
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

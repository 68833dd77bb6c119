"""Producers that wait for an offset, and the wake-up call."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.log.offset_waiters import OffsetWaiters, by_sink
from twinlog.store.util.wakeup import Wakeup


@given(st.lists(st.integers(1, 50), max_size=30), st.lists(st.integers(0, 1000), max_size=10))
def test_each_waiter_is_released_once_in_order(sizes, confirmed):
    waiters, end, expected, got = OffsetWaiters(), 0, [], []
    for number, size in enumerate(sizes):
        end += size
        waiters.add(end, float(number), "sink", b"%d" % number)
        expected.append((end, b"%d" % number))
    high = 0
    for up_to in confirmed:
        high = max(high, up_to)
        got += [(w.end_offset, w.frame) for w in waiters.release(up_to)]
        assert got == [one for one in expected if one[0] <= high]
    assert len(waiters) == len(expected) - len(got)
    assert [w.frame for w in waiters.drain()] == [frame for end, frame in expected if end > high]
    assert not waiters


def test_deadlines_are_reached_in_order():
    waiters = OffsetWaiters()
    assert waiters.next_deadline is None
    for number in range(3):
        waiters.add(number, 10.0 + number, "sink", b"%d" % number)
    assert waiters.next_deadline == 10
    assert [w.frame for w in waiters.expire(9.9)] == []
    assert [w.frame for w in waiters.expire(11)] == [b"0", b"1"]
    assert waiters.next_deadline == 12


def test_frames_are_gathered_for_each_sink():
    waiters, one, two = OffsetWaiters(), object(), object()
    for number, sink in enumerate([one, two, one, one, two]):
        waiters.add(number, 0, sink, b"%d" % number)
    assert by_sink(waiters.drain()) == [(one, [b"0", b"2", b"3"]), (two, [b"1", b"4"])]


async def test_a_call_before_the_wait_is_not_lost(autojump_clock):
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    with trio.fail_after(1):
        await wakeup.wait()
    with trio.move_on_after(1) as scope:
        await wakeup.wait()
    assert scope.cancelled_caught


async def test_a_call_wakes_the_waiting_task(autojump_clock, nursery):
    wakeup, woken = Wakeup(), []

    async def wait():
        while True:
            await wakeup.wait()
            woken.append(trio.current_time())

    nursery.start_soon(wait)
    await trio.sleep(1)
    wakeup.set()
    wakeup.set()  # Counts as one while the task has not run, and is remembered.
    await trio.sleep(1)
    assert len(woken) in (1, 2)
    wakeup.set()
    await trio.sleep(1)
    assert woken[-1] == 2
    nursery.cancel_scope.cancel()


async def test_a_cancelled_wait_leaves_it_usable(autojump_clock):
    wakeup = Wakeup()
    for _ in range(2):
        with trio.move_on_after(1):
            await wakeup.wait()
    wakeup.set()
    with trio.fail_after(1):
        await wakeup.wait()

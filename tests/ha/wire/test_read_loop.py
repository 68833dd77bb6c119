"""Reads of several sockets by one task."""

import contextlib
import socket
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
import trio
import trio.testing

from twinlog.ha.wire.read_loop import SLICE_SECONDS, WAIT_SECONDS, notify_closing, read_each

NAME: ContextVar[str] = ContextVar("NAME", default="")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def test_the_step_takes_what_arrives_until_it_says_no(pair):
    ours, theirs = pair
    taken: list[bytes] = []

    def step() -> bool:
        taken.append(ours.recv(1))
        return taken[-1] != b"."

    with trio.fail_after(5):
        theirs.send(b"ab.cd.")
        await read_each(ours, step)
        assert b"".join(taken) == b"ab."
        await read_each(ours, step)
    assert b"".join(taken) == b"ab.cd."


async def test_what_the_step_raises_is_raised_to_who_waits(pair, nursery):
    ours, theirs = pair
    theirs.send(b"x")
    with pytest.raises(ZeroDivisionError):
        await read_each(ours, lambda: bool(1 // 0))
    theirs.send(b"y")
    await read_each(ours, lambda: False)  # The loop goes on.


async def test_the_step_runs_in_the_context_of_who_waits(pair):
    ours, theirs = pair
    NAME.set("reader")
    seen: list[str] = []

    def step() -> bool:
        seen.append(NAME.get())
        return False

    theirs.send(b"x")
    await read_each(ours, step)
    assert seen == ["reader"]


@pytest.mark.parametrize("by_the_step", [False, True])
async def test_closing_ends_it(pair, nursery, by_the_step):
    ours, theirs = pair

    def close() -> bool:
        notify_closing(ours)
        ours.close()
        return True

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await read_each(ours, close)

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        if by_the_step:
            theirs.send(b"x")
        else:
            close()
    with pytest.raises(trio.ClosedResourceError):
        await read_each(ours, close)


@pytest.mark.parametrize("by_the_step", [False, True])
async def test_a_cancelled_reader_leaves(pair, by_the_step):
    """Also one that a step cancels, its own or that of another socket in the same pass."""
    (ours, theirs), (other, its_peer) = pair, socket.socketpair()
    calls: list[str] = []
    with other, its_peer, trio.fail_after(5):
        async with trio.open_nursery() as nursery:

            def step(name: str) -> bool:
                calls.append(name)
                nursery.cancel_scope.cancel()
                return True

            nursery.start_soon(read_each, ours, lambda: step("one"))
            nursery.start_soon(read_each, other, lambda: step("other"))
            await trio.testing.wait_all_tasks_blocked()
            if by_the_step:
                theirs.send(b"x")
                its_peer.send(b"x")
            else:
                nursery.cancel_scope.cancel()
        assert len(calls) == by_the_step
        theirs.send(b"y")
        await read_each(ours, lambda: False)


async def test_one_socket_has_one_reader(pair, nursery):
    ours, _ = pair
    nursery.start_soon(read_each, ours, lambda: True)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await read_each(ours, lambda: True)
    nursery.cancel_scope.cancel()


async def test_answers_in_a_row_need_no_turn_of_trio(nursery):
    """A message goes on to another socket and its answer comes back, all between two turns: that is what it is for."""
    sockets = [socket.socketpair() for _ in range(2)]
    (ours, client), (slave, its_end) = sockets
    turns, left = 0, 200

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, _timeout: float) -> None:
            nonlocal turns
            turns += 1

    def pass_on() -> bool:
        slave.send(ours.recv(1))
        return True

    def take_back() -> bool:
        nonlocal left
        slave.recv(1)
        left -= 1
        if left:
            client.send(b"m")
        return left > 0

    def echo() -> bool:
        its_end.send(its_end.recv(1))
        return True

    with contextlib.ExitStack() as stack, trio.fail_after(10):
        for end in (ours, client, slave, its_end):
            stack.enter_context(end)
        nursery.start_soon(read_each, ours, pass_on)
        nursery.start_soon(read_each, its_end, echo)
        client.send(b"m")
        trio.lowlevel.add_instrument(counter := Turns())
        await read_each(slave, take_back)
        trio.lowlevel.remove_instrument(counter)
        nursery.cancel_scope.cancel()
    assert turns < 200  # 600 messages were read.


async def test_other_tasks_are_hardly_late(pair, nursery):
    """A peer that always has more keeps nobody waiting for long: neither a task that can run, nor one that sleeps."""
    ours, theirs = pair
    theirs.send(b"x")
    longest = 0.0

    async def sleeper() -> None:
        nonlocal longest
        for _ in range(200):
            began = time.monotonic()
            await trio.sleep(0.0005)
            longest = max(longest, time.monotonic() - began)

    def step() -> bool:
        theirs.send(ours.recv(1))
        time.sleep(0.00001)
        return True

    with trio.fail_after(30):
        async with trio.open_nursery() as inner:
            inner.start_soon(read_each, theirs, lambda: ours.send(theirs.recv(1)) > 0)
            inner.start_soon(read_each, ours, step)
            await sleeper()
            began = time.monotonic()
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            per_turn = (time.monotonic() - began) / 100
            inner.cancel_scope.cancel()
    assert per_turn < 10 * (SLICE_SECONDS + WAIT_SECONDS)  # A loaded machine takes some of it.
    assert longest < 1

"""Limits on memory that peers can use: unread responses, partial frames, requests of slow handlers."""

import gc
import mmap
from contextlib import AsyncExitStack, suppress

import psutil
import pytest
import trio
import trio.testing
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.cluster.remoting.serving import BATCH, BURN, ECHO, FILL, WAIT, serving
from tests.loop_turns import LoopTurns
from twinlog.cluster.remoting.connection import BEHIND_BYTES
from twinlog.cluster.remoting.dispatch import SLICE_SECONDS
from twinlog.cluster.remoting.limits import Budget, LogLimit

MIB = 1 << 20


# Answers


async def test_a_burst_of_requests_is_answered_as_fast_as_its_peer_reads():
    """All arrive in one read; the connection is not closed for the total size of their responses."""
    async with serving(unsent_bytes_max=16 * MIB) as here:
        client = await here.connect()
        await client.send(b"".join(client.request(FILL, size=MIB, parts=1) for _ in range(60)))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert BEHIND_BYTES < here.connection.unsent_bytes < 16 * MIB
        for number in range(60):
            answer = await client.receive()
            assert (answer.opaque, len(answer.body)) == (number + 1, MIB)
        assert (await client.ask(ECHO, text="x")).code == 0


async def test_requests_keep_their_order_across_a_pause():
    async with serving() as here:
        client = await here.connect()
        asked = [client.request(FILL, size=MIB) if n % 3 else client.request(ECHO, text=str(n)) for n in range(60)]
        await client.send(b"".join(asked))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [(await client.receive()).opaque for _ in range(60)] == list(range(1, 61))


async def test_batches_go_on_after_a_pause():
    async with serving() as here:
        client = await here.connect()
        fills = b"".join(client.request(FILL, size=MIB) for _ in range(12))
        await client.send(fills + client.request(BATCH, body=b"last"))
        for _ in range(12):
            await client.receive()
        assert (await client.receive()).ext == {"size": "4"}
        assert here.batches == [[b"last"]]


# Turns


async def test_what_one_read_brings_does_not_stop_the_others():
    """Slow requests are carried out in time slices, in their order, and other tasks run in between."""
    with LoopTurns.counted() as turns:
        async with serving() as here:
            client = await here.connect()
            await client.ask(ECHO, text="x")
            here.owner.look = lambda: turns.count
            count, each = 20, SLICE_SECONDS / 2
            burns = [client.request(BURN, seconds=each) for _ in range(count)]
            await client.send(b"".join([*burns, client.request(BATCH, body=b"last"), client.request(ECHO, text="end")]))
            opaques = [(await client.receive()).opaque for _ in range(count + 2)]
            assert opaques[:count] == list(range(2, count + 2))
            assert len(set(here.owner.seen)) >= count // 4
            assert here.batches == [[b"last"]]


async def test_a_stop_carries_out_what_was_read():
    """Even over several time slices."""
    async with serving() as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        here.owner.look = here.server.stop_reading
        await client.send(b"".join(client.request(BURN, seconds=SLICE_SECONDS / 2) for _ in range(10)))
        for _ in range(10):
            assert (await client.receive()).code == 0
        await here.server.responses_sent()


@pytest.mark.parametrize("is_cut", ["cancelled", "parting"])
async def test_an_end_does_not_wait_for_what_was_read(is_cut):
    """These may be thousands of slow requests."""
    async with serving() as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        await client.send(b"".join(client.request(BURN, seconds=SLICE_SECONDS / 2) for _ in range(100)))
        while not here.owner.seen:
            await trio.lowlevel.checkpoint()
        if is_cut == "parting":
            here.server.stop_reading()
            await here.server.close_gently(0.01)
    assert len(here.owner.seen) < 50


async def test_all_connections_together_have_a_limit():
    """Each stays below its own limit; the one with most is closed first, with one line, and connections that read are not."""
    async with serving(bytes_max=20 * MIB, unsent_bytes_max=64 * MIB) as here:
        reader, clients = await here.connect(), []
        with capture_logs() as logs:
            for number in range(8):
                client = await here.connect()
                clients.append(client)
                await client.send(client.request(FILL, size=MIB, parts=15 if number == 2 else 12))
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.budget.kept_bytes <= 20 * MIB
        assert 0 < len(logs) < 8
        assert {entry["event"] for entry in logs} == {
            "connection closed: all connections together use too much memory, and this one uses most"
        }
        assert logs[0]["bytes"] > 4 * MIB
        assert (await reader.ask(ECHO, text="x")).code == 0


async def test_records_that_are_mapped_cost_nothing(tmp_path):
    """They count for the connection, but not for the budget: their memory is the kernel's page cache."""
    file = tmp_path / "log"
    file.write_bytes(bytes(8 * MIB))
    with file.open("rb") as opened:
        view = memoryview(mmap.mmap(opened.fileno(), 8 * MIB, prot=mmap.PROT_READ))
    async with serving(unsent_bytes_max=64 * MIB) as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        here.connection.write(bytes(100), view, view)
        assert here.connection.unsent_bytes > 4 * MIB
        assert here.server.budget.kept_bytes == 0
        here.connection.write(bytes(1000), view[:5000])
        assert here.server.budget.kept_bytes == 1000
        here.connection.close()
        assert here.server.budget.kept_bytes == 0


async def test_what_is_read_is_given_back():
    async with serving() as here:
        client = await here.connect()
        await client.send(client.request(FILL, size=MIB, parts=12))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.budget.kept_bytes > 0
        await client.receive()
        assert here.server.budget.kept_bytes == 0


# Frames


async def test_halves_of_frames_count(autojump_clock):
    async with serving(bytes_max=8 * MIB) as here:
        other = await here.connect()
        with capture_logs() as logs:
            for _ in range(5):
                client = await here.connect()
                await client.send(client.request(BATCH, body=bytes(3 * MIB))[: 2 * MIB])
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert here.server.budget.kept_bytes <= 8 * MIB
        assert len(logs) in (1, 2)  # Of five with 2 MiB each three may stay; of the fourth what still fits.
        assert (await other.ask(ECHO, text="x")).code == 0


async def test_a_frame_that_is_finished_is_given_back():
    async with serving() as here:
        client = await here.connect()
        frame = client.request(BATCH, body=bytes(3 * MIB))
        await client.send(frame[: 2 * MIB])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.budget.kept_bytes == 2 * MIB
        await client.send(frame[2 * MIB :])
        assert (await client.receive()).code == 0
        assert here.server.budget.kept_bytes == 0
        await client.send(frame[:MIB])
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.budget.kept_bytes == 0


# Requests


@pytest.mark.parametrize("limits", [{"requests_max": 3}, {"request_bytes_max": 3000}])
async def test_too_many_requests_that_take_their_time_are_refused(limits, autojump_clock):
    """As RocketMQ refuses them when the queue of a thread pool is full; others continue."""
    async with serving(**limits) as here:
        client = await here.connect()
        await client.send(b"".join(client.request(WAIT, seconds=5, body=bytes(1000)) for _ in range(5)))
        for _ in range(2):
            answer = await client.receive()
            assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        assert (await client.ask(ECHO, text="x")).code == 0
        assert [(await client.receive()).code for _ in range(3)] == [0, 0, 0]
        assert (await client.ask(WAIT, seconds=1, body=bytes(5000))).code == 0  # One alone may be larger.
        assert here.server.dispatcher.under_way == 0


# Memory


async def test_two_hundred_that_never_read_stay_within_the_bound():
    """Measured by the size of this process, which also has the other ends of the sockets."""
    bound = 64 * MIB
    async with serving(bytes_max=bound) as here, AsyncExitStack():
        clients = [await here.connect() for _ in range(200)]
        gc.collect()
        before = psutil.Process().memory_info().rss
        with capture_logs() as logs:
            for _ in range(4):
                for client in clients:
                    with trio.move_on_after(0.01):
                        with suppress(trio.BrokenResourceError):
                            await client.send(b"".join(client.request(FILL, size=MIB // 2) for _ in range(20)))
                assert here.server.budget.kept_bytes <= bound
                grown = psutil.Process().memory_info().rss - before
                assert grown < bound + 48 * MIB
        assert logs
        live = await here.connect()
        assert (await live.ask(ECHO, text="x")).code == 0


# The sum


@define(eq=False)
class Peer:
    budget: Budget
    remote_address: str = "peer"
    kept_bytes: int = 0
    closed: bool = False

    def close(self):
        self.closed = True
        self.budget.forget(self)


@given(
    changes=st.lists(st.tuples(st.integers(0, 4), st.integers(-50, 100)), max_size=50), bytes_max=st.integers(0, 300)
)
@settings(deadline=None)
def test_the_sum_is_right_and_within_its_bound(changes, bytes_max):
    budget = Budget(bytes_max)
    peers = [Peer(budget) for _ in range(5)]
    with capture_logs():
        for number, by in changes:
            peer = peers[number]
            if not peer.closed and peer.kept_bytes + by >= 0:
                budget.change(peer, by)
            assert budget.kept_bytes == sum(each.kept_bytes for each in peers) <= bytes_max
            assert all(each.kept_bytes == 0 for each in peers if each.closed)
    for peer in peers:
        peer.close()
    assert budget.kept_bytes == 0


async def test_a_line_says_how_many_were_left_out(autojump_clock):
    limit = LogLimit(5.0)
    assert [limit.due("a") for _ in range(4)] == [0, None, None, None]
    assert limit.due("b") == 0
    await trio.sleep(5)
    assert [limit.due("a"), limit.due("a")] == [3, None]


async def test_keys_that_anybody_makes_up_fill_no_memory(autojump_clock):
    limit = LogLimit()
    assert [limit.due(str(number)) for number in range(2500)] == [0] * 2500
    assert len(limit._lines) <= 1000

"""The network between members of a cluster for tests, with one echo server as a member."""

from functools import partial

import pytest
import trio

from twinlog.cluster.testing.ports import HOST, reserve
from twinlog.cluster.testing.relay import Network, Way

SOON, NEVER = 5.0, 0.1


@pytest.fixture
async def network(nursery):
    """A network in which all connections are of the member `b`, with its own owner function set by tests."""
    network = Network(HOST, lambda _port: "b")
    async with network.running():
        yield network


@pytest.fixture
async def way(nursery):
    """To a server that returns what it gets."""

    async def echo(stream):
        async for data in stream:
            await stream.send_all(data)

    (listener,) = await nursery.start(partial(trio.serve_tcp, echo, 0, host=HOST))
    told = reserve()
    yield Way(told.number, listener.socket.getsockname()[1])
    told.close()


async def answer(stream, data=b"x", within=SOON):
    """What comes back; None: nothing in time."""
    await stream.send_all(data)
    with trio.move_on_after(within):
        return await stream.receive_some()
    return None


async def test_bytes_wait_while_the_network_is_cut(network, way):
    await network.open("a", (way,))
    async with await trio.open_tcp_stream(HOST, way.told) as before:
        assert await answer(before) == b"x"
        for isolated in ("a", "b"):
            await network.isolate(frozenset({isolated}))
            async with await trio.open_tcp_stream(HOST, way.told) as during:
                assert await answer(before, b"1", NEVER) is None
                assert await answer(during, b"2", NEVER) is None
                await network.isolate(frozenset())
                assert await before.receive_some() == b"1"
                assert await during.receive_some() == b"2"


async def test_members_on_one_side_reach_each_other(network, way):
    await network.open("a", (way,))
    for isolated in ({"a", "b"}, {"c"}):
        await network.isolate(frozenset(isolated))
        async with await trio.open_tcp_stream(HOST, way.told) as stream:
            assert await answer(stream) == b"x"


async def test_one_that_is_not_known_is_on_the_side_of_most(network, way):
    network.owner = lambda _port: ""
    await network.open("a", (way,))
    await network.isolate(frozenset({"b"}))
    async with await trio.open_tcp_stream(HOST, way.told) as stream:
        assert await answer(stream) == b"x"
        await network.isolate(frozenset({"a"}))
        assert await answer(stream, within=NEVER) is None


async def test_a_member_that_does_not_run_refuses_and_comes_back(network, way):
    await network.open("a", (way,))
    async with await trio.open_tcp_stream(HOST, way.told) as stream:
        assert await answer(stream) == b"x"
        await network.shut("a")
        with trio.fail_after(SOON):
            assert await stream.receive_some() == b""
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(HOST, way.told)
    await network.shut("a")  # Without effect.
    await network.open("a", (way,))
    async with await trio.open_tcp_stream(HOST, way.told) as again:
        assert await answer(again) == b"x"

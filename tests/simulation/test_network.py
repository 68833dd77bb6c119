"""The simulated network: order is kept, and each fault does what it is called."""

import random

import pytest
import trio
import trio.testing

from tests.simulation.network import Network
from tests.support.stream_transport import StreamTransport
from twinlog.ha.errors import HAConnectionLostError

A, B, PORT = "10.0.0.1", "10.0.0.2", "10.0.0.2:1"


@pytest.fixture
def network(autojump_clock, nursery) -> Network:
    return Network(random.Random(1), nursery)


async def connect(network: Network, nursery: trio.Nursery) -> tuple[StreamTransport, StreamTransport]:
    """Both ends of a connection from A to B."""
    accepted: list[StreamTransport] = []

    async def serve(transport: StreamTransport, address: str, ip: str) -> None:
        assert (ip, address.partition(":")[0]) == (A, A)
        accepted.append(transport)

    network.listen(PORT, nursery, serve)
    ours = await network.connect(A, PORT)
    await trio.testing.wait_all_tasks_blocked()
    return ours, accepted[0]


async def receive(transport: StreamTransport, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := await transport.receive()):
        data += piece
    return data


@pytest.mark.parametrize("piece_max", [1, 7, 1 << 16])
async def test_bytes_arrive_in_order_whatever_the_pieces(autojump_clock, network, nursery, piece_max):
    ours, theirs = await connect(network, nursery)
    network.link(A, B).change(piece_max=piece_max)
    data = random.Random(2).randbytes(3000)
    nursery.start_soon(ours.send, data)
    assert await receive(theirs, len(data)) == data


async def test_a_way_that_is_cut_delivers_nothing_until_it_is_whole_and_the_other_way_works(
    autojump_clock, network, nursery
):
    ours, theirs = await connect(network, nursery)
    network.link(A, B).change(cut=True)
    await ours.send(b"there")
    await theirs.send(b"back")
    assert await receive(ours, 4) == b"back"
    with trio.move_on_after(60) as nothing:
        await theirs.receive()
    assert nothing.cancelled_caught
    network.heal()
    assert await receive(theirs, 5) == b"there"


async def test_one_bit_flips(autojump_clock, network, nursery):
    ours, theirs = await connect(network, nursery)
    network.link(A, B).change(flips=1)
    await ours.send(bytes(100))
    data = await receive(theirs, 100)
    assert sum(byte.bit_count() for byte in data) == 1 == network.flipped


async def test_a_reset_in_a_frame_lets_so_many_bytes_through(autojump_clock, network, nursery):
    ours, theirs = await connect(network, nursery)
    network.link(A, B).change(resets_after=30)
    await ours.send(bytes(100))
    await trio.sleep(1)
    with pytest.raises(HAConnectionLostError):
        await ours.send(b"x")
    with pytest.raises(HAConnectionLostError):
        await receive(theirs, 100)


async def test_who_lost_power_says_nothing_and_who_closed_is_heard(autojump_clock, network, nursery):
    ours, theirs = await connect(network, nursery)
    network.mute(A)
    await ours.aclose()
    with trio.move_on_after(60) as nothing:
        await theirs.receive()
    assert nothing.cancelled_caught
    network.reset(A)
    ours, theirs = await connect(network, nursery)
    await ours.send(b"bye")
    await ours.aclose()
    assert await receive(theirs, 4) == b"bye"


async def test_half_of_a_connection_is_lost_and_the_other_end_hears_nothing(autojump_clock, network, nursery):
    ours, theirs = await connect(network, nursery)
    network.reset_half(A)
    with pytest.raises(HAConnectionLostError):
        await ours.receive()
    with trio.move_on_after(60) as nothing:
        await theirs.receive()
    assert nothing.cancelled_caught


async def test_nobody_listens_there(autojump_clock, network):
    with pytest.raises(HAConnectionLostError, match="refused"):
        await network.connect(A, PORT)

"""What replication asks another member, over the wire: of a twinlog member, of RocketMQ, and of one that fails."""

import socket

import pytest
import trio

from tests.cluster.broker.helpers import make_broker, put
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.broker.peers.ha_peer import Peers, RemotingPeer
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerLog
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.record.message import decode_message


@pytest.fixture
async def member(tmp_path, nursery):
    broker = make_broker(tmp_path / "broker-a-0", listen_port=free_broker_port())
    await nursery.start(broker.run)
    return broker


async def test_a_member_tells_its_log_its_digests_and_its_records(member, client):
    results = [put(member, body=b"%d" % number * 9_000) for number in range(9)]
    peer = RemotingPeer(member.address, client)
    end = member.store.max_offset
    assert await peer.log() == PeerLog(
        is_twinlog=True,
        min_offset=0,
        max_offset=end,
        boot_ms=member.settings.boot_ms,
        file_size=1 << 20,
        is_master=True,
    )
    assert await peer.digests(3, end) == await member.store.range_digester.digests(3, end)
    grouped = await member.store.range_digester.digests(0, BLOCK_SIZE, blocks_per_digest=8)
    assert await peer.digests(0, BLOCK_SIZE, blocks_per_digest=8) == grouped
    record = await peer.record(results[4].phy_offset)
    assert decode_message(record).body == b"4" * 9_000
    assert await peer.record(results[4].phy_offset + 1) is None


async def test_a_range_that_a_member_does_not_hold(member, client):
    with pytest.raises(HAPeerError, match="not all in this log"):
        await RemotingPeer(member.address, client).digests(0, 5)


# RocketMQ, as it answers


async def test_a_rocketmq_broker_has_no_digests(client, nursery):
    broker = RocketMQ.telling(bootTimestamp="1700000000000")
    peer = RemotingPeer(await serve_rocketmq(nursery, broker), client)
    assert await peer.digests(0, 77) is None
    log = PeerLog(
        is_twinlog=False, min_offset=0, max_offset=77, boot_ms=1_700_000_000_000, file_size=1 << 30, is_master=False
    )
    assert await peer.log() == log
    assert broker.asked == [20002, 20001, 28, 26]
    assert await peer.log() == log
    assert await peer.digests(0, 77) is None
    assert broker.asked[4:] == [28], "what it is was remembered"


async def test_with_another_connection_it_may_be_another_program(client, nursery):
    broker = RocketMQ.telling()
    peer = RemotingPeer(await serve_rocketmq(nursery, broker), client)
    await peer.log()
    broker.stream.socket.shutdown(socket.SHUT_RDWR)
    while client.connection_of(peer.address) is not None:
        await trio.sleep(0.01)
    await peer.log()
    assert broker.asked == [20001, 28, 26, 20001, 28, 26]


async def test_an_empty_log_of_rocketmq_begins_where_it_ends(client, nursery):
    broker = RocketMQ.telling(commitLogMinOffset="-1", commitLogMaxOffset="0")
    broker.answers[26] = (16, b"")
    log = await RemotingPeer(await serve_rocketmq(nursery, broker), client).log()
    assert log == PeerLog(is_twinlog=False, min_offset=0, max_offset=0)


@pytest.mark.parametrize("answer", [(1, b""), (0, b""), (0, b"rubbish that is no record" * 9)])
async def test_what_rocketmq_answers_where_no_record_begins(client, nursery, answer):
    """It takes the four bytes that lie there for a size."""
    broker = RocketMQ.telling()
    broker.answers[33] = answer
    assert await RemotingPeer(await serve_rocketmq(nursery, broker), client).record(5) is None


async def test_a_record_that_lies_elsewhere_is_none(member, client, nursery):
    first, second = put(member), put(member)
    broker = RocketMQ.telling()
    broker.answers[33] = (0, bytes(member.store.message_at(second.phy_offset)))
    peer = RemotingPeer(await serve_rocketmq(nursery, broker), client)
    assert await peer.record(first.phy_offset) is None
    assert await peer.record(second.phy_offset) == broker.answers[33][1]


# Those that fail


async def test_nobody_there(client):
    peer = RemotingPeer(f"127.0.0.1:{free_broker_port()}", client)
    for question in (peer.log(), peer.digests(0, 1), peer.record(0)):
        with pytest.raises(HAPeerError, match="refused"):
            await question


async def test_one_that_never_answers(client, nursery, autojump_clock):
    """It is given three seconds."""
    left, right = trio.testing.memory_stream_pair()

    async def connect(_):
        return left

    silent = RemotingClient(connect=connect)
    await nursery.start(silent.run)
    with pytest.raises(HAPeerError, match="within 3000 ms"):
        await RemotingPeer("127.0.0.1:5", silent).log()
    await right.aclose()


@pytest.mark.parametrize(
    "answers",
    [
        {20001: (0, b'{"minOffset": 0}')},
        {20001: (0, b"no JSON")},
        {20001: (0, b'{"minOffset": 1e300, "maxOffset": 0, "role": "SLAVE"}')},
        {28: (0, b'{"table": {"commitLogMaxOffset": "many"}}')},
        {28: (1, b"")},
        {20002: (0, b"")},
    ],
)
async def test_answers_that_cannot_be_used(client, nursery, answers):
    broker = RocketMQ.telling()
    broker.answers.update(answers)
    peer = RemotingPeer(await serve_rocketmq(nursery, broker), client)
    with pytest.raises(HAPeerError):
        await (peer.digests(0, 5) if 20002 in answers else peer.log())


# Which member it is


def test_the_registered_master_is_asked_where_it_says_it_is():
    master = Master("10.0.0.1:30911", "10.0.1.1:777")
    peers = Peers(RemotingClient(), lambda: master)
    assert peers.peer_of("10.0.1.1:777").address == "10.0.0.1:30911"
    assert peers.peer_of("10.0.1.1:10912").address == "10.0.1.1:10911"
    assert peers.peer_of("[::1]:10912").address == "[::1]:10911"
    assert peers.peer_of("nowhere") is None
    assert peers.peer_of("10.0.0.1:1") is None


def test_a_peer_is_kept_as_long_as_its_address_is_asked_for():
    peers = Peers(RemotingClient(), lambda: Master(None, None))
    first = peers.peer_of("10.0.0.1:10912")
    assert peers.peer_of("10.0.0.1:10912") is first
    assert peers.peer_of("10.0.0.2:10912") is not first

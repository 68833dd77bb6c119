"""What a member finds at the addresses of the others in its record."""

import orjson
import pytest
import trio
from attrs import evolve

from tests.cluster.broker.helpers import Client, make_broker
from tests.support.process_group.ports import free_broker_port, free_port
from twinlog.cluster.broker.peers import reach
from twinlog.cluster.broker.peers.ha_peer import RemotingCalls
from twinlog.cluster.broker.peers.reach import KEPT_SECONDS, Reach
from twinlog.cluster.remoting import client
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.ha.election.group_record import first_record
from twinlog.ha.errors import HAPeerError
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember


@pytest.fixture
async def other(tmp_path, nursery):
    """A broker that runs."""
    broker = make_broker(tmp_path / "other", listen_port=free_broker_port(), broker_ip1="127.0.0.1")
    await nursery.start(broker.run)
    return broker


@pytest.fixture
async def asked(tmp_path, nursery):
    broker = make_broker(tmp_path / "asked", listen_port=free_broker_port(), broker_ip1="127.0.0.1")
    await nursery.start(broker.run)
    return broker


async def found(broker, other: GroupMember) -> dict[str, tuple[str, str | None]]:
    """By use: result, and who answers; by request, with `other` in the record."""
    member = broker.roles.member
    record = first_record(member.me(), evolve(other, broker_id=1, name="broker-a-1"), 1, BrokerRole.ASYNC_MASTER)
    await member.durable.save(evolve(member.state_or_first(), group=record))
    body = orjson.loads(
        (await Client(broker).ask_async(RequestCode.TWINLOG_MEMBER_STATUS, b"", twinlogReach="true")).body
    )
    assert {each["name"] for each in body["reach"]} == {"broker-a-1"}
    return {each["use"]: (each["result"], each["found"]) for each in body["reach"]}


async def test_a_member_that_is_where_it_says(asked, other):
    me = other.roles.member.me()
    assert await found(asked, me) == {"requests": ("reached", me.id), "replication": ("reached", None)}


async def test_ports_that_nobody_listens_at_and_names_that_nobody_knows(asked, other):
    me = other.roles.member.me()
    closed = evolve(me, address=f"127.0.0.1:{free_port()}", ha_address="no-such-host.invalid:10912")
    assert await found(asked, closed) == {"requests": ("refused", None), "replication": ("name unknown", None)}


async def test_another_member_at_its_address(asked, other):
    me = other.roles.member.me()
    assert (await found(asked, evolve(me, id="m0123456789ab")))["requests"] == ("another member", me.id)


async def test_the_address_for_members_is_tried(asked, other):
    me = other.roles.member.me()
    assert (await found(asked, evolve(me, member_address=f"127.0.0.1:{free_port()}")))["requests"] == ("refused", None)
    assert asked.group.ways_to(me.address)[0] != me.address


async def test_nothing_is_tried_without_being_asked(asked):
    body = orjson.loads(Client(asked).ask(RequestCode.TWINLOG_MEMBER_STATUS, b"").body)
    assert body["reach"] is None


async def test_who_asks_often_is_told_what_was_found_before(autojump_clock, monkeypatch):
    tried = []

    async def connect(address: str) -> trio.abc.Stream:
        tried.append(address)
        await trio.sleep(60)

    async def history(address: str, timeout_ms: int) -> None:
        raise HAPeerError("never asked")

    monkeypatch.setattr(reach, "connect_tcp", connect)
    other = GroupMember(address="192.0.2.2:1", ha_address="192.0.2.2:2", broker_id=1, name="b")
    looker = Reach(lambda: [other], history)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(looker.look)
    assert sorted(tried) == ["192.0.2.2:1", "192.0.2.2:2"]
    assert {each.result for each in await looker.look()} == {"timed out"}
    await trio.sleep(KEPT_SECONDS)
    await looker.look()
    assert len(tried) == 4


async def test_a_connection_to_where_nobody_is_any_more_is_given_up(nursery, monkeypatch):
    """As after a member has moved: its old address takes nothing, and says nothing. Who is asked again is asked on a new one."""
    asked: list[trio.SocketStream] = []

    async def say_nothing(stream: trio.SocketStream) -> None:
        async for _ in stream:
            if stream not in asked:
                asked.append(stream)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, say_nothing, [listener])
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    monkeypatch.setattr(client, "SILENCE_MS", 100)
    monkeypatch.setattr(reach, "PROBE_SECONDS_MAX", 0.15)
    monkeypatch.setattr(reach, "KEPT_SECONDS", 0.0)
    caller = RemotingClient()
    await nursery.start(caller.run)
    other = GroupMember(address=address, ha_address=address, broker_id=1, name="b")
    looker = Reach(lambda: [other], RemotingCalls(caller).who_is_at)
    with trio.fail_after(10):
        while len(asked) < 2:
            (requests, _) = sorted(await looker.look(), key=lambda each: each.use, reverse=True)
            assert (requests.result, requests.why) == ("timed out", "it takes connections, and does not answer")

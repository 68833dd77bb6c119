"""Requests about roles over the wire: two brokers without a name server, and who may ask them."""

import orjson
import pytest
import trio

from tests.cluster.broker.helpers import Client, make_broker
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.peers.ha_peer import RemotingCalls, RemotingPeer
from twinlog.cluster.broker.peers.role_messages import RoleRefusedError
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.members import RenewLease
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.errors import HAPeerError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST
from twinlog.store.role_file import GroupMember

SLAVE = GroupMember(address="127.0.0.1:7", ha_address="127.0.0.1:8", broker_id=3, name="b")


@pytest.fixture
async def master(tmp_path, nursery):
    broker = make_broker(tmp_path / "a", listen_port=free_broker_port(), role=BrokerRole.SYNC_MASTER)
    await nursery.start(broker.run)
    return broker


async def test_epochs_as_rocketmq_tells_them_and_as_twinlog_does(master, client):
    told = orjson.loads(await ClientApi(client, ()).epochs(master.address))
    assert told["epochList"] == [{"epoch": 0, "startOffset": 0, "endOffset": 0}]
    assert (told["brokerName"], told["brokerId"], told["maxOffset"]) == ("broker-a", 0, 0)
    assert told["twinlog"]["epochs"][0]["kind"] == "first"
    history = await RemotingPeer(master.address, client).history(None)
    assert history == master.roles.member.own_history()
    assert (history.id, history.role) == (FIRST.id, BrokerRole.SYNC_MASTER)


async def test_who_says_that_it_follows_belongs_to_the_group(master, client):
    await RemotingPeer(master.address, client).history(SLAVE)
    with trio.fail_after(5):
        while master.roles.member.group is None:
            await trio.sleep(0.01)
    assert master.roles.member.group.member(SLAVE.address) == SLAVE
    history = await RemotingPeer(master.address, client).history(SLAVE)
    assert history.group == master.roles.member.group


async def test_a_rocketmq_broker_has_no_history(client, nursery):
    address = await serve_rocketmq(nursery, RocketMQ.telling(bootTimestamp="1700000000000"))
    assert await RemotingPeer(address, client).history(None) is None


async def test_answers_and_refusals(master, client):
    calls = RemotingCalls(client)
    answer = await calls.promise(master.address, VoteRequest(epoch=7, candidate=SLAVE.address, dry_run=True))
    assert (answer.granted, answer.address) == (False, master.address)
    assert answer.why == "it has never belonged to a group with a record"
    with pytest.raises(RoleRefusedError, match="is another member"):
        await calls.role_change(master.address, "start", {"verb": "failover", "candidate": SLAVE.address})
    assert (await calls.role_change(master.address, "state", {}))["running"] is False
    with pytest.raises(HAPeerError, match="answers 29: the body is invalid"):
        await calls.role_change(master.address, "start", {"verb": "coup", "candidate": SLAVE.address})
    with pytest.raises(HAPeerError, match="failed"):
        await calls.role_change(f"127.0.0.1:{free_broker_port()}", "state", {})


async def test_strangers_change_nothing(master):
    stranger = Client(master)
    stranger.connection.remote_address = "192.0.2.7:1234"
    for code in (RequestCode.TWINLOG_LEASE, RequestCode.TWINLOG_PROMISE, RequestCode.TWINLOG_ROLE_CHANGE):
        reply = await stranger.ask_async(code, b"{}")
        assert reply.code == ResponseCode.NO_PERMISSION
    reply = await stranger.ask_async(
        RequestCode.GET_BROKER_EPOCH, b"", twinlogMember="192.0.2.7:1", twinlogHaAddress="192.0.2.7:2"
    )
    assert reply.code == ResponseCode.SUCCESS
    await trio.sleep(0.1)
    assert master.roles.member.group is None


async def test_the_body_has_to_be_json(master, client):
    with pytest.raises(RequestError) as refusal:
        await ClientApi(client, ()).call(master.address, RenewLease(), b"{")
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER

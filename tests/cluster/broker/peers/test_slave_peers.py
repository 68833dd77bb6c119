"""Which registered slave is at the other end of an HA connection: ours tell, RocketMQ's are taken by what they hold."""

import orjson
import pytest
import trio
from attrs import define

from tests.cluster.broker.helpers import make_broker
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.peers.ha_peer import RemotingPeer
from twinlog.cluster.broker.peers.slave_peers import REPORT_SECONDS, SlaveKind, SlaveKinds, SlavePeers, kind_of
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.cluster.remoting.member_status import MemberStatus

HA_END = "127.0.0.1:5555"


async def found(client, *addresses, requested=77):
    asked = []
    peers = await SlavePeers(client, lambda: addresses, lambda: asked.append(1)).find(HA_END, requested)
    assert bool(asked) is (peers == [])  # The slave may have only just registered.
    return None if peers is None else sorted(peer.address for peer in peers)


async def test_rocketmq_slaves_of_this_ip_that_hold_as_much(client, nursery):
    enough = await serve_rocketmq(nursery, RocketMQ.telling())
    less = await serve_rocketmq(nursery, RocketMQ.telling(commitLogMaxOffset="76"))
    silent = f"127.0.0.1:{free_broker_port()}"
    elsewhere = "127.0.0.2:" + enough.partition(":")[2]
    assert await found(client, enough, less, silent, elsewhere) == [enough]
    assert await found(client, enough, less, requested=76) == sorted((enough, less))
    assert await found(client) == []


async def test_what_is_found_can_be_asked(client, nursery):
    address = await serve_rocketmq(nursery, RocketMQ.telling())
    (peer,) = await SlavePeers(client, lambda: [address], lambda: None).find(HA_END, 77)
    assert isinstance(peer, RemotingPeer)
    assert (await peer.log()).max_offset == 77


async def test_a_twinlog_slave_that_is_at_this_end_compares_by_itself(client, nursery):
    rocketmq = await serve_rocketmq(nursery, RocketMQ.telling())
    for local_address, wanted in ((HA_END, None), ("127.0.0.1:5556", [rocketmq])):
        status = orjson.dumps({"master": {"localAddress": local_address}})
        member = await serve_rocketmq(nursery, RocketMQ({20001: (0, status)}))
        assert await found(client, member, rocketmq) == wanted


async def test_a_twinlog_slave_that_told_its_end_is_not_asked(client):
    """Once: the end of a connection may be another program's later."""
    asked = []
    peers = SlavePeers(client, lambda: asked.append(1) or (), lambda: None)
    peers.report("127.0.0.1:1", HA_END, "127.0.0.1")
    assert await peers.find(HA_END, 77) is None
    assert not asked
    assert await peers.find(HA_END, 77) == []


async def test_a_slave_that_is_registered_in_another_network(client, nursery):
    """Its brokerIP1 is of one network, and by its brokerIP2 it is found in the other."""
    status = orjson.dumps({"master": {"localAddress": HA_END}})
    member = await serve_rocketmq(nursery, RocketMQ({20001: (0, status)}))
    peers = SlavePeers(client, lambda: ["192.0.2.1:10911"], lambda: None, lambda ip: [member] * (ip == "127.0.0.1"))
    assert await peers.find(HA_END, 77) is None


@pytest.mark.parametrize("end", ["127.0.0.1:4444", ""])
async def test_a_slave_behind_a_proxy_is_the_next_that_comes_from_there(client, autojump_clock, end):
    """What it told of is no end that we see. One that we see is another slave's, and old words are nobody's."""
    ends = {"127.0.0.1:3333"}
    peers = SlavePeers(client, lambda: (), lambda: None, is_open=ends.__contains__)
    peers.report("127.0.0.1:1", "127.0.0.1:3333", "127.0.0.1")
    assert await peers.find(HA_END, 77) == [], "it waits for its own connection"
    peers.report("127.0.0.1:2", end, "127.0.0.1")
    assert await peers.find("127.0.0.2:5555", 77) == [], "from elsewhere"
    assert await peers.find(HA_END, 77) is None
    assert await peers.find(HA_END, 77) == [], "once"
    peers.report("127.0.0.1:2", end, "127.0.0.1")
    await trio.sleep(REPORT_SECONDS)
    assert await peers.find(HA_END, 77) == []


async def test_a_status_that_is_none(client, nursery):
    """A master must not stop for what another program answers."""
    for master in ("127.0.0.1:5555", ["localAddress"], 7):
        member = await serve_rocketmq(nursery, RocketMQ({20001: (0, orjson.dumps({"master": master}))}))
        assert await found(client, member) == []


async def test_a_member_as_it_answers(client, nursery, tmp_path):
    member = make_broker(tmp_path / "broker-a-1", listen_port=free_broker_port())
    await nursery.start(member.run)
    assert await found(client, member.address, requested=0) == []


@define
class Members:
    """Answers as the members at these addresses would."""

    answers: dict[str, bytes | None]  # None: a RocketMQ broker.

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: float) -> RemotingCommand:
        assert command.code == RequestCode.TWINLOG_MEMBER_STATUS
        if address not in self.answers:
            raise RemotingConnectError(address, "nobody is there")
        body = self.answers[address]
        code = ResponseCode.SUCCESS if body is not None else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return RemotingCommand.response_to(command, code, body=body or b"")


async def test_slaves_are_known_by_their_end_of_the_connection():
    members = Members(
        {
            "10.0.0.1:1": b'{"ackMode": "written", "master": {"localAddress": "10.0.0.1:5001"}}',
            "10.0.0.2:1": b'{"ackMode": "flushed", "name": "a-2", "brokerId": 2, "master": {"localAddress": "10.0.0.2:5002"}}',
            "10.0.0.3:1": None,
            "10.0.0.5:1": b'{"master": "x"}',
        }
    )
    kinds = SlaveKinds(members, lambda: ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"])
    await kinds.ask()
    assert kinds.kinds == {"10.0.0.1:5001": SlaveKind(flushes=False), "10.0.0.2:5002": SlaveKind(True, "a-2", 2)}
    del members.answers["10.0.0.2:1"]
    await kinds.ask()
    assert kinds.kinds.keys() == {"10.0.0.1:5001"}, "who is silent is not known any more"


@pytest.mark.parametrize("status", [{}, {"master": None}, {"master": {"localAddress": None}}])
def test_who_has_no_connection_has_no_kind(status):
    assert kind_of(MemberStatus.from_json(status)) == {}

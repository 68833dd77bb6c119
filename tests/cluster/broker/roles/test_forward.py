"""Requests that another member answers."""

import pytest
import trio
import trio.testing
from attrs import define, field

from tests.cluster.broker.helpers import make_broker
from tests.cluster.broker.security.rules import ADMIN, broker_with_rules, signed
from twinlog.cluster.broker.roles.forward import FROM, HOPS, Forwarder
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, RESPONSE, ROCKETMQ, FrameReader, RemotingCommand, decode, encode
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.record.message import decode_message, host_bytes
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

MASTER = "127.0.0.1:10911"


@define(eq=False)
class Client:
    """The connection of a client; keeps what it is sent, and how often it was written to."""

    remote_address: str = "10.1.1.1:4000"
    sent: list[RemotingCommand] = field(factory=list)
    corks: list[str] = field(factory=list)

    def send(self, command):
        self.sent.append(command)

    def cork(self):
        self.corks.append("cork")

    def uncork(self):
        self.corks.append("uncork")

    @property
    def codes(self):
        return [(answer.opaque, answer.code) for answer in self.sent]


@define(eq=False)
class Master:
    """The other end of the forwarder's streams."""

    reachable: bool = True
    streams: list[trio.abc.Stream] = field(factory=list)
    addresses: list[str] = field(factory=list)
    reader: FrameReader = field(factory=FrameReader)
    found: list[RemotingCommand] = field(factory=list)

    async def connect(self, address):
        self.addresses.append(address)
        await trio.sleep(0.001)
        if not self.reachable:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self.streams.append(theirs)
        self.reader = FrameReader()
        return ours

    async def requests(self, count) -> list[RemotingCommand]:
        """Those that come next."""
        with trio.fail_after(10):
            while not self.streams:
                await trio.sleep(0.001)
            while len(self.found) < count:
                data = await self.streams[-1].receive_some()
                self.found += [decode(bytes(frame)) for frame in self.reader.feed(data)]
        found, self.found = self.found[:count], self.found[count:]
        return found

    async def answer(self, *requests, code=0):
        answers = [encode(RemotingCommand.response_to(request, code, ext={"a": "b"})) for request in requests]
        await self.streams[-1].send_all(b"".join(answers))
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def master():
    return Master()


@pytest.fixture
async def forwarder(nursery, master):
    forwarder = Forwarder(connect=master.connect)
    forwarder.aim(MASTER)
    await nursery.start(forwarder.run)
    return forwarder


def command(opaque, **more):
    return RemotingCommand(310, opaque, ext={"b": "T1"}, body=b"hello", **more)


async def test_what_was_checked_here_is_signed_by_this_member(master, forwarder, autojump_clock, tmp_path):
    """The client's own signature does not cover what is added on the way."""
    broker = broker_with_rules(tmp_path)
    forwarder.sign = broker.gate.forwarder.sign
    client = Client()
    for each in (command(7), command(8, flag=ONEWAY)):
        each.ext["b"] = "topicB"
        forwarder.forward(client, signed(each))
    for request in await master.requests(2):
        assert request.ext["AccessKey"] == ADMIN.access_key
        assert broker.acl.check(client, request) is None
    assert make_broker(tmp_path / "other").gate.forwarder.sign is None


async def test_requests_go_in_order_and_answers_come_back_to_who_asked(master, forwarder, autojump_clock):
    first, second = Client("10.1.1.1:4000"), Client("10.1.1.2:4000")
    for opaque in (7, 8, 9):
        forwarder.forward(first, command(opaque))
        forwarder.forward(second, command(opaque, serialize_type=ROCKETMQ))
    requests = await master.requests(6)
    assert [request.ext[FROM] for request in requests] == ["10.1.1.1:4000", "10.1.1.2:4000"] * 3
    assert {request.ext[HOPS] for request in requests} == {"1"}
    assert {(request.ext["b"], bytes(request.body), request.version) for request in requests} == {("T1", b"hello", 409)}
    await master.answer(*reversed(requests))
    assert first.codes == second.codes == [(9, 0), (8, 0), (7, 0)]
    assert {answer.serialize_type for answer in second.sent} == {ROCKETMQ}
    assert all(answer.flag & RESPONSE and answer.ext == {"a": "b"} for answer in first.sent)
    assert first.corks == second.corks == ["cork", "uncork"], "one write for all answers that came together"
    assert master.addresses == [MASTER]


async def test_oneway_requests_are_passed_on_and_not_waited_for(master, forwarder, autojump_clock):
    client = Client()
    forwarder.forward(client, command(1, flag=ONEWAY))
    (request,) = await master.requests(1)
    assert request.is_oneway
    await trio.sleep(10)
    assert client.sent == []


@pytest.mark.parametrize(("flag", "code", "count"), [(0, 0, 1), (ONEWAY, 0, 1), (0, 1, 0), (ONEWAY, 1, 0)])
async def test_whoever_wants_to_know_hears_when_the_master_has_done_it(
    master, forwarder, autojump_clock, flag, code, count
):
    """A oneway request is asked as one with an answer then, of which its client sees nothing."""
    client, taken = Client(), []
    forwarder.forward(client, command(7, flag=flag), taken=lambda: taken.append(True))
    (request,) = await master.requests(1)
    assert not request.is_oneway
    assert taken == []
    await master.answer(request, code=code)
    assert taken == [True] * count
    assert client.codes == ([] if flag else [(7, code)])


async def test_a_request_does_not_run_in_a_circle(master, forwarder, autojump_clock):
    """It says on whose behalf it comes, however often it was passed on."""
    client = Client("10.9.9.9:1")
    told = {FROM: "10.1.1.1:4000"}
    forwarder.forward(client, RemotingCommand(310, 1, ext={**told, HOPS: "2"}), by_member=True)
    forwarder.forward(client, RemotingCommand(310, 2, ext={**told, HOPS: "3"}), by_member=True)
    forwarder.forward(client, RemotingCommand(310, 3, ext={**told, HOPS: "x"}), by_member=True)
    (request,) = await master.requests(1)
    assert (request.ext[FROM], request.ext[HOPS]) == ("10.1.1.1:4000", "3")
    assert client.codes == [(2, ResponseCode.SERVICE_NOT_AVAILABLE), (3, ResponseCode.SERVICE_NOT_AVAILABLE)]


@pytest.mark.parametrize(("by_member", "told"), [(False, "10.6.6.6:1"), (True, "somebody")])
async def test_nobody_but_a_member_says_for_whom(master, forwarder, by_member, told):
    client = Client("10.9.9.9:1")
    forwarder.forward(client, RemotingCommand(310, 1, ext={FROM: told, HOPS: "1"}), by_member=by_member)
    forwarder.forward(client, RemotingCommand(310, 2, ext={FROM: told, HOPS: "0"}), by_member=by_member)
    requests = await master.requests(2)
    assert {request.ext[FROM] for request in requests} == {"10.9.9.9:1"}


async def test_a_master_that_cannot_be_reached_is_said_at_once_and_tried_again(master, forwarder, autojump_clock):
    client, master.reachable = Client(), False
    forwarder.forward(client, command(1))
    await trio.sleep(0.01)
    assert client.codes == [(1, ResponseCode.SERVICE_NOT_AVAILABLE)]
    assert client.sent[0].remark == f"service not available now: the master {MASTER} cannot be reached"
    master.reachable = True
    forwarder.forward(client, command(2))
    await master.answer(*await master.requests(1))
    assert client.codes[1:] == [(2, 0)]


async def test_a_connection_that_breaks_leaves_nobody_waiting(master, forwarder, autojump_clock):
    client = Client()
    forwarder.forward(client, command(1))
    await master.requests(1)
    await master.streams[-1].aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert client.codes == [(1, ResponseCode.SYSTEM_ERROR)]  # SERVICE_NOT_AVAILABLE says that nothing is stored.
    assert "may have carried this out" in client.sent[0].remark
    forwarder.forward(client, command(2))
    await trio.sleep(0.01)
    await master.answer(*await master.requests(1))
    assert client.codes[1:] == [(2, 0)]


async def test_a_master_that_is_silent_is_waited_for_three_seconds(master, forwarder, autojump_clock):
    """A producer's own time is not much longer. An answer that comes later is dropped."""
    client = Client()
    forwarder.forward(client, command(1))
    requests = await master.requests(1)
    await trio.sleep(2.9)
    assert client.sent == []
    await trio.sleep(0.5)
    assert client.codes == [(1, ResponseCode.SYSTEM_ERROR)]  # SERVICE_NOT_AVAILABLE says that nothing is stored.
    assert "may have carried this out" in client.sent[0].remark
    await master.answer(*requests)
    assert len(client.sent) == 1


async def test_another_master_gets_what_comes_from_then_on(master, forwarder, autojump_clock):
    """What the one before was asked it answers itself: it may hold it back, and pass it on in its turn."""
    client = Client()
    forwarder.forward(client, command(1))
    before = await master.requests(1)
    forwarder.aim("127.0.0.2:10911")
    forwarder.forward(client, command(2))
    await trio.sleep(0.01)
    await master.answer(*await master.requests(1))
    assert client.codes == [(2, 0)]
    assert master.addresses == [MASTER, "127.0.0.2:10911"]
    master.streams.reverse()
    await master.answer(*before)
    assert client.codes == [(2, 0), (1, 0)]
    await trio.sleep(1)
    assert await master.streams[-1].receive_some() == b"", "the stream to the one before has ended"


async def test_another_master_is_found_when_nothing_was_passed_on_for_a_while(master, forwarder, autojump_clock):
    client = Client()
    for number, address in enumerate((MASTER, "127.0.0.2:10911", "127.0.0.2:10911", MASTER)):
        forwarder.aim(address)
        forwarder.forward(client, command(number))
        await trio.sleep(0.01)
        await master.answer(*await master.requests(1))
        await trio.sleep(30)
    assert client.codes == [(number, 0) for number in range(4)]
    assert len(master.streams) == 4


async def test_a_stream_that_is_not_needed_is_closed(master, forwarder, autojump_clock):
    client = Client()
    forwarder.forward(client, command(1))
    await master.answer(*await master.requests(1))
    await trio.sleep(21)
    assert await master.streams[0].receive_some() == b""


async def test_what_was_held_goes_first_to_the_new_master(master, nursery, autojump_clock):
    gate = Gate(forwarder=Forwarder(connect=master.connect))
    await nursery.start(gate.run)
    client = Client()
    gate.close_for(trio.current_time() + 2)
    for opaque in (1, 2, 3):
        assert gate.takes(client, command(opaque), lambda: None)
    await trio.sleep(0.04)
    gate.forward_to(MASTER, 60)
    assert gate.takes(client, command(4), lambda: None)
    await master.answer(*await master.requests(4))
    assert client.codes == [(1, 0), (2, 0), (3, 0), (4, 0)]


async def test_much_that_was_held_leaves_room_for_others_and_goes_first(master, nursery, autojump_clock):
    """The stream that confirms it all, say; and what comes meanwhile waits behind it."""
    gate = Gate(forwarder=Forwarder(connect=master.connect))
    await nursery.start(gate.run)
    client = Client()
    gate.close_for(trio.current_time() + 2)
    bodies = [b"%d" % number for number in range(1001)]
    for number, body in enumerate(bodies[:-1]):
        assert gate.takes(client, RemotingCommand(310, number, body=body), lambda: None)
    gate.forward_to(MASTER, 60)
    assert 0 < gate._held_bytes < sum(map(len, bodies)), "no more than a part at a time"
    assert gate.takes(client, RemotingCommand(310, 1000, body=bodies[-1]), lambda: None)
    found = await master.requests(1001)
    assert [bytes(each.body) for each in found] == bodies
    await master.answer(*found)
    assert len(client.codes) == 1001


async def test_what_a_broker_held_back_another_one_takes(tmp_path, nursery):
    """Over real sockets: messages, a lock and an offset, for a client that talks to the old master alone."""
    old = make_broker(tmp_path / "old", listen_port=0)
    new = make_broker(tmp_path / "new", listen_port=0)
    member = GroupMember(address="127.0.0.1:1", ha_address="", broker_id=1, name="old")
    record = GroupRecord(version=1, members=(member,), acks_needed=1, master_role=BrokerRole.ASYNC_MASTER)
    state = RoleState(role=BrokerRole.ASYNC_MASTER, broker_id=0, promised=EpochId(1, "new"), group=record)
    new.gate.role_state = lambda: state
    client = RemotingClient()
    for service in (old.run, new.run, client.run):
        await nursery.start(service)
    old.gate.close_for(trio.current_time() + 5)
    fields = {"a": "P", "b": "T1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    lock = {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "T1", "brokerName": "broker-a", "queueId": 0}]}
    offset = {"consumerGroup": "G", "topic": "T1", "queueId": "0", "commitOffset": "7"}
    requests = [RemotingCommand(310, ext=fields, body=b"%d" % number) for number in range(20)]
    requests += [RemotingCommand(41, body=fastjson.dumps(lock)), RemotingCommand(15, ext=offset)]
    requests += [RemotingCommand(15, ext={**offset, "consumerGroup": "H"})]
    new.tables.offsets.commit("H", "T1", 0, 9)  # The same client, which knows the new master by now.
    answers = []

    async def ask(request):
        answers.append(await client.request(old.address, request))

    with trio.fail_after(10):
        async with trio.open_nursery() as asking:
            for request in requests:
                asking.start_soon(ask, request)
            while len(old.gate._held) < len(requests):
                await trio.sleep(0.01)
            old.gate.forward_to(new.address, 60)
    assert [answer.code for answer in answers] == [0] * len(requests)
    assert old.store.max_offset == 0
    stored = _messages(new)
    assert {message.body for message in stored} == {b"%d" % number for number in range(20)}
    host, port = client.connection_of(old.address).stream.socket.getsockname()
    assert {message.born_host for message in stored} == {host_bytes(f"{host}:{port}")}
    assert new.tables.offsets.query("G", "T1", 0) == old.tables.offsets.query("G", "T1", 0) == 7
    assert new.tables.offsets.query("H", "T1", 0) == 9, "what was said before it is no news"


def _messages(broker):
    """All that a broker's log holds."""
    messages, at = [], 0
    while at < broker.store.max_offset:
        record = broker.store.message_at(at)
        messages.append(decode_message(record))
        at += len(record)
    return messages

"""Brokers with a group secret, asked over their remoting ports: what a signature is needed for, and what is refused."""

from functools import partial

import orjson
import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs

from tests.cluster.broker.security.rules import ADMIN, OWN, write_rules
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.config import BrokerConfig, SecretMode
from twinlog.cluster.broker.peers.ha_peer import RemotingCalls, RemotingPeer
from twinlog.cluster.broker.processors.member_check import is_from_here
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.wiring import make_broker
from twinlog.cluster.config.group_secret import GroupSecrets, new_secret, write_secrets
from twinlog.cluster.remoting.client import RemotingClient, connect_tcp
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import MemberAuthError
from twinlog.cluster.remoting.member_auth import OwnProof, read_challenge
from twinlog.cluster.remoting.signing import make_signer
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.errors import HAIdentityError, HAPeerError
from twinlog.ha.master.tickets import NOBODY, Holder
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.role_file import GroupMember

ONE, TWO = new_secret(), new_secret()
SLAVE = GroupMember(address="127.0.0.1:7", ha_address="127.0.0.1:8", broker_id=3, name="b", id="member-b", codes=("1",))
NO_MEMBER = "it has never belonged to a group with a record"


@define(eq=False)
class Tapped(trio.abc.Stream):
    """A stream, and what went over it. Patched methods would not do: a connection writes to a TCP stream of trio's itself."""

    stream: trio.abc.Stream
    sent: bytearray
    received: bytearray

    async def send_all(self, data):
        self.sent.extend(data)
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self):
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes=None):
        data = await self.stream.receive_some(max_bytes)
        self.received.extend(data)
        return data

    async def aclose(self):
        await self.stream.aclose()


@define(eq=False)
class Wire:
    """Connects, and keeps what was sent and received on each connection."""

    sent: list[bytearray] = field(factory=list)
    received: list[bytearray] = field(factory=list)

    async def connect(self, address):
        self.sent.append(bytearray())
        self.received.append(bytearray())
        return Tapped(await connect_tcp(address), self.sent[-1], self.received[-1])


@define(eq=False)
class Asker:
    """Another member, or whoever takes himself for one."""

    client: RemotingClient
    secrets: GroupSecrets
    wire: Wire = field(factory=Wire)
    is_required: bool = False

    def ask(self, address, candidate="member-b"):
        return RemotingCalls(self.client).promise(address, VoteRequest(epoch=7, candidate=candidate, dry_run=True))


@pytest.fixture
def asking(nursery):
    async def start(*secrets, sender="member-b", required=False):
        wire, holder = Wire(), GroupSecrets(None, secrets)
        proof = OwnProof(lambda: holder.current, lambda: sender, lambda: required)
        client = RemotingClient(connect=wire.connect, proof=proof)
        await nursery.start(client.run)
        return Asker(client, holder, wire)

    return start


@pytest.fixture
def serving(tmp_path, nursery):
    async def start(*secrets, name="a", acl_config=None, **options):
        if secrets:
            write_secrets(tmp_path / f"{name}.secret", secrets)
            options["secret_file"] = str(tmp_path / f"{name}.secret")
        config = BrokerConfig(broker_name="g", broker_ip1="127.0.0.1", listen_port=free_broker_port(), **options)
        store = StoreConfig(
            root=tmp_path / name, broker_role=BrokerRole.SYNC_MASTER, mapped_file_size_commit_log=1 << 20
        )
        broker = make_broker(config, store, acl_config=acl_config)
        await nursery.start(broker.run)
        return broker

    return start


async def raw(address, *frames):
    """The answers to these frames, on one new connection."""
    stream, reader, answers = await connect_tcp(address), FrameReader(), []
    async with stream:
        await stream.send_all(b"".join(frames))
        with trio.fail_after(5):
            while len(answers) < len(frames):
                answers += [decode(bytes(frame)) for frame in reader.feed(await stream.receive_some(65_536))]
    return answers


def frames_in(data):
    return [encode(decode(frame)) for frame in FrameReader().feed(bytes(data))]


async def test_a_signed_request_is_carried_out_and_its_answer_is_proven(serving, asking):
    broker, asker = await serving(ONE), await asking(ONE)
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    codes = [decode(frame[4:]).code for frame in frames_in(asker.wire.sent[0])]
    assert codes == [20007, 20005, 20005], "One challenge for a connection"
    received = [decode(frame[4:]) for frame in frames_in(asker.wire.received[0])]
    assert ["twinlogMac" in (answer.ext or {}) for answer in received] == [False, True, True]


async def test_what_needs_a_signature(serving, asking):
    """Also from this machine, as members ask each other there; a role change may come unsigned from there."""
    broker, asker = await serving(ONE), await asking()
    with capture_logs() as lines, pytest.raises(HAPeerError, match="not signed, and haSecret=required here"):
        await asker.ask(broker.address)
    with pytest.raises(HAPeerError, match=f"known here: {ONE.id}. Next: give all members"):
        await RemotingCalls(asker.client).history(broker.address, SLAVE)
    (line,) = (line for line in lines if line["event"].startswith("request refused"))
    assert (line["code"], line["known"]) == (20005, ONE.id)
    assert (await RemotingCalls(asker.client).role_change(broker.address, "state", {}))["running"] is False
    assert await RemotingPeer(broker.address, asker.client).history(None) is not None
    assert broker.roles.joining.pending == {}
    assert b"20007" not in asker.wire.sent[0], "Who has no secret asks for no challenge"


async def test_a_role_change_from_elsewhere_needs_a_signature(serving):
    broker = await serving(ONE)
    (server, _) = broker.servers
    async with await connect_tcp(broker.address):
        with trio.fail_after(5):
            while not server.connections:
                await trio.sleep(0.01)
        (connection,) = server.connections
        assert is_from_here(connection)
        connection.remote_address, connection.local_ip = "192.0.2.7:1", "192.0.2.7"
        assert is_from_here(connection), "This machine, by its other address"
        connection.local_ip = "192.0.2.8"
        assert not is_from_here(connection)


async def test_optional_accepts_both_and_may_become_required(serving, asking):
    broker = await serving(ONE, secret_mode=SecretMode.optional)
    plain, signing = await asking(), await asking(ONE)
    for asker in (plain, signing):
        assert (await asker.ask(broker.address)).why == NO_MEMBER
    wrong = await asking(TWO)
    with pytest.raises(HAPeerError, match=f"the secret {TWO.id} is not known here; .* known here: {ONE.id}"):
        await wrong.ask(broker.address)
    ask = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"haSecret=required")
    assert (await plain.client.request(broker.address, ask)).code == ResponseCode.SUCCESS
    with pytest.raises(HAPeerError, match="not signed"):
        await plain.ask(broker.address)
    assert (await signing.ask(broker.address)).why == NO_MEMBER
    ask.body = b"haSecret=optional"
    answer = await plain.client.request(broker.address, ask)
    assert (answer.code, "would accept members without" in answer.remark) == (ResponseCode.NO_PERMISSION, True)


async def test_who_is_proven_to_be_one_member_does_not_speak_for_another(serving, asking):
    broker, asker = await serving(ONE), await asking(ONE, sender="member-c")
    with pytest.raises(HAPeerError, match="signed by member-c, and speaks for member-b"):
        await asker.ask(broker.address)
    calls = RemotingCalls(asker.client)
    with pytest.raises(HAIdentityError, match="speaks for member-b"):
        await calls.history(broker.address, SLAVE)
    with pytest.raises(Exception, match="speaks for member-b"):
        await calls.role_change(broker.address, "hold", {"epoch": 7, "candidate": "member-b", "ms": 100})
    assert (await asker.ask(broker.address, "member-c")).why == NO_MEMBER


async def test_a_recorded_request_does_nothing_again(serving, asking):
    """On the same connection, on another one, behind a challenge of one's own, at another member."""
    broker, other, asker = await serving(ONE), await serving(ONE, name="b"), await asking(ONE)
    await asker.ask(broker.address)
    challenge, recorded = frames_in(asker.wire.sent[0])
    for address in (broker.address, other.address):
        (answer,) = await raw(address, recorded)
        assert (answer.code, "no challenge on this connection" in answer.remark) == (ResponseCode.NO_PERMISSION, True)
        answers = await raw(address, challenge, recorded)
        assert (answers[0].code, answers[1].code) == (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
        assert "does not fit the request" in answers[1].remark
    connection = asker.client.connection_of(broker.address)
    again = decode(recorded[4:])
    waiter = await connection.begin(again)
    answer = await connection.response(waiter, again)
    assert (answer.code, "was received before" in answer.remark) == (ResponseCode.NO_PERMISSION, True)


async def test_a_secret_is_rotated_while_members_talk(serving, asking):
    broker, asker = await serving(ONE), await asking(ONE)
    await asker.ask(broker.address)
    broker.secrets.secrets = ONE, TWO
    asker.secrets.secrets = TWO, ONE
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    asker.secrets.secrets = (ONE,)
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    broker.secrets.secrets = (TWO,)
    with pytest.raises(HAPeerError, match=f"{ONE.id} is not known here"):
        await asker.ask(broker.address)
    asker.secrets.secrets = (TWO,)
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    assert len(asker.wire.sent) == 1, "All on one connection"


async def test_requests_at_once_are_sent_in_the_order_of_their_numbers(serving, asking):
    broker, asker = await serving(ONE, TWO), await asking(ONE)

    async def ask(turn):
        asker.secrets.secrets = (ONE, TWO) if turn % 3 else (TWO, ONE)
        assert (await asker.ask(broker.address)).why == NO_MEMBER

    async with trio.open_nursery() as nursery:
        for turn in range(50):
            nursery.start_soon(ask, turn)


async def test_a_member_without_a_secret_is_asked_as_before_or_not_at_all(serving, asking, nursery):
    """RocketMQ, twinlog 0.2, and a member whose haSecretFile is not set answer the challenge alike."""
    broker = await serving()
    rocketmq = await serve_rocketmq(nursery, RocketMQ.telling())
    optional, required = await asking(ONE), await asking(ONE, required=True)
    assert (await optional.ask(broker.address)).why == NO_MEMBER
    assert (await optional.ask(broker.address)).why == NO_MEMBER
    assert optional.wire.sent[0].count(b"20007") == 1
    assert await RemotingPeer(rocketmq, optional.client).history(SLAVE) is None
    for address in (broker.address, rocketmq):
        for _ in range(2):
            with pytest.raises(
                HAPeerError, match=r"it has no group secret, or is a version before 0\.3.*Next: set haSecretFile"
            ):
                await required.ask(address)
    assert b"20005" not in b"".join(required.wire.sent)


@pytest.mark.parametrize("how", ["unsigned", "changed", "of another answer"])
async def test_an_answer_that_is_not_proven_is_none(serving, asking, nursery, how):
    """Somebody between the two says yes in the other's place."""
    broker, asker = await serving(ONE), await asking(ONE)
    earlier = []

    def changed(frame):
        answer = decode(frame)
        if "twinlogMac" not in (answer.ext or {}):
            return answer
        earlier.append(answer)
        match how:
            case "unsigned":
                answer.ext = None
            case "changed":
                answer.body = bytes(answer.body).replace(b'"granted":false', b'"granted":true')
            case _ if len(earlier) > 1:
                answer.body, answer.ext = earlier[0].body, earlier[0].ext
        return answer

    async def between(stream):
        async with await connect_tcp(broker.address) as there, trio.open_nursery() as both:
            both.start_soon(forward, stream, there, lambda frame: decode(frame))
            both.start_soon(forward, there, stream, changed)

    async def forward(source, target, change):
        reader = FrameReader()
        async for data in source:
            for frame in reader.feed(data):
                await target.send_all(encode(change(bytes(frame))))

    (listener,) = await nursery.start(partial(trio.serve_tcp, between, 0, host="127.0.0.1"))
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    if how == "of another answer":
        await asker.ask(address)
    with pytest.raises(HAPeerError, match="is not signed: code 0" if how == "unsigned" else "does not fit the answer"):
        await asker.ask(address)
    nursery.cancel_scope.cancel()


async def test_a_challenge_that_is_none(serving):
    broker = await serving(ONE)
    ask = RemotingCommand(RequestCode.TWINLOG_MEMBER_CHALLENGE, 1, ext={"nonce": "x" * 129})
    (answer,) = await raw(broker.address, encode(ask))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(MemberAuthError, match="no challenge was given: code 29"):
        read_challenge(answer, "x")


async def test_a_member_that_joins_by_a_signature_gets_a_ticket_that_an_onlooker_cannot_use(serving, asking):
    broker, asker = await serving(ONE), await asking(ONE)
    history = await RemotingPeer(broker.address, asker.client).history(SLAVE)
    (answer,) = (decode(frame[4:]) for frame in frames_in(asker.wire.received[0])[1:])
    seen = orjson.loads(bytes(answer.body))["twinlog"]["ticket"]
    tickets = broker.ha.connection_admission.tickets
    assert (tickets.holder_of(seen), tickets.holder_of(history.ticket)) == (NOBODY, Holder(SLAVE.id, ONE.id))


async def test_the_signature_of_an_account_is_checked_behind_that_of_a_member(serving, asking, tmp_path):
    """It does not cover the member's fields, which are added after it."""
    write_rules(tmp_path / "home")
    acl_config = AclConfig(enable=True, home=tmp_path / "home", credentials=OWN)
    broker = await serving(ONE, acl_config=acl_config)
    asker = await asking(ONE)
    with pytest.raises(HAPeerError, match="No accessKey is configured"):
        await asker.ask(broker.address)
    asker.client.sign = make_signer(ADMIN)
    assert (await asker.ask(broker.address)).why == NO_MEMBER
    asker.secrets.secrets = (TWO,)
    with pytest.raises(HAPeerError, match="is not known here"):
        await asker.ask(broker.address)

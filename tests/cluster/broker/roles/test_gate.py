"""The gate: what becomes of requests while a member's role changes."""

import pytest
import trio

from tests.cluster.broker.helpers import FakeConnection, FakeForwarder, heartbeat, make_broker, opened, put, settle
from tests.cluster.broker.sending import Producer, make_parts
from twinlog.cluster.broker.roles.forward import FROM, HOPS
from twinlog.cluster.broker.roles.gate import HELD_BYTES_MAX, Gate
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, RemotingCommand
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.record.message import host_bytes
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

LOCK, UPDATE_OFFSET, QUERY_OFFSET, PULL = 41, 15, 14, 11
PRODUCER = host_bytes("10.1.1.1:4000")


def commit(client, offset, *, topic="T1"):
    fields = {"consumerGroup": "G", "topic": topic, "queueId": 0, "commitOffset": offset}
    return client.ask(UPDATE_OFFSET, **fields)


async def test_requests_that_are_held_are_carried_out_in_order_when_the_gate_opens(tmp_path):
    producer = Producer(make_parts(tmp_path))
    gate = producer.parts.gate
    gate.close_for(trio.current_time() + 2)
    frames = [bytearray(b"%d" % number) for number in range(5)]
    for frame in frames:
        assert producer.send(producer.command(body=memoryview(frame))) == []
        frame[:] = b"?"  # As the server's buffer, which the next read overwrites.
    assert producer.stored() == []
    gate.open()
    assert [answer.code for answer in producer.wire.answers] == [0] * 5
    assert [answer.opaque for answer in producer.wire.answers] == [1, 2, 3, 4, 5]
    assert [message.body for message in producer.stored()] == [b"%d" % number for number in range(5)]
    assert [answer.code for answer in producer.send(producer.command())] == [0]


async def test_a_gate_that_shuts_refuses_what_it_held_so_that_producers_try_again(tmp_path):
    producer = Producer(make_parts(tmp_path))
    producer.parts.gate.close_for(trio.current_time() + 2)
    producer.send(producer.command(), producer.command(flag=ONEWAY))
    producer.parts.gate.shut("epoch 5 was promised to broker-b")
    producer.send(producer.command())
    codes = [(answer.opaque, answer.code) for answer in producer.wire.answers]
    assert codes == [(1, ResponseCode.SERVICE_NOT_AVAILABLE), (3, ResponseCode.SERVICE_NOT_AVAILABLE)]
    assert all("epoch 5 was promised to broker-b" in answer.remark for answer in producer.wire.answers)
    assert all(answer.ext == {} for answer in producer.wire.answers), "the Java client reads it without looking"
    assert producer.stored() == []


async def test_a_hold_that_nobody_ends_is_over_a_little_after_its_deadline(tmp_path, autojump_clock, nursery):
    producer = Producer(make_parts(tmp_path))
    gate = producer.parts.gate
    nursery.start_soon(gate.run)
    gate.close_for(trio.current_time() + 2.5)
    producer.send(producer.command())
    await trio.sleep(2.5)
    assert (gate.state, producer.wire.answers) == ("holding", [])
    await trio.sleep(0.5)
    assert gate.state == "closed"
    assert [answer.code for answer in producer.wire.answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_a_hold_that_was_ended_is_not_ended_again_at_its_deadline(autojump_clock, nursery):
    gate = Gate()
    nursery.start_soon(gate.run)
    gate.close_for(trio.current_time() + 1)
    await trio.sleep(0.5)
    gate.open()
    await trio.sleep(5)
    assert gate.state == "open"


async def test_no_more_is_held_than_memory_allows():
    gate, connection = Gate(), FakeConnection()
    gate.close_for(trio.current_time() + 1)
    body = bytes(HELD_BYTES_MAX // 4)
    for opaque in range(5):
        assert gate.takes(connection, RemotingCommand(310, opaque, body=body), lambda: None)
    assert [(answer.opaque, answer.code) for answer in connection.sent] == [(4, ResponseCode.SERVICE_NOT_AVAILABLE)]
    gate.open()
    gate.close_for(trio.current_time() + 1)
    gate.takes(connection, RemotingCommand(310, 9, body=body), lambda: None)
    assert len(connection.sent) == 1, "what was carried out makes room"


async def test_a_request_that_fails_when_it_is_carried_out_does_not_keep_the_others_waiting():
    gate, connection, done = Gate(), FakeConnection(), []
    gate.close_for(trio.current_time() + 1)
    gate.takes(connection, RemotingCommand(310, 1), lambda: done.append(1 / 0))
    gate.takes(connection, RemotingCommand(310, 2), lambda: done.append(2))
    gate.open()
    assert (gate.state, done) == ("open", [2])
    (answer,) = connection.sent
    assert (answer.opaque, answer.code) == (1, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert "ZeroDivisionError" in answer.remark


async def test_handlers_are_held_too_and_answer_when_they_were_carried_out(tmp_path):
    broker = make_broker(tmp_path)
    async with opened(broker) as client:
        broker.gate.close_for(trio.current_time() + 2)
        body = {"consumerGroup": "G", "clientId": "c1", "mqSet": [{"topic": "T1", "brokerName": "b", "queueId": 0}]}
        assert client.ask(LOCK, body) is None
        assert client.ask(LOCK, {"consumerGroup": "G"}) is None
        assert client.ask(36, group="G", offset=0, delayLevel=0) is None
        half = {
            "producerGroup": "G",
            "tranStateTableOffset": 0,
            "commitLogOffset": 0,
            "commitOrRollback": 8,
            "msgId": "x",
        }
        assert client.ask(37, **half) is None
        assert client.connection.sent == []
        broker.gate.open()
        assert [answer.code for answer in client.connection.sent] == [0, 1, 1, 1]
        assert b'"queueId":0' in bytes(client.connection.sent[0].body)


async def test_offsets_are_known_here_once_the_master_has_them_and_never_fall(tmp_path):
    """Who read one here before could be told less by the new master."""
    broker, forwarder = make_broker(tmp_path), FakeForwarder()
    broker.gate.forwarder = forwarder
    async with opened(broker) as client:
        commit(client, 7)
        broker.gate.close_for(trio.current_time() + 1)
        assert commit(client, 8) is None
        broker.gate.forward_to("127.0.0.1:1", 60)
        assert commit(client, 9) is None
        assert commit(client, 3) is None
        assert [command.ext["commitOffset"] for command in forwarder.passed] == ["8", "9", "3"]
        assert broker.tables.offsets.query("G", "T1", 0) == 7
        known = []
        for taken in forwarder.taken:
            taken()
            known.append(broker.tables.offsets.query("G", "T1", 0))
        assert known == [8, 9, 9]
        broker.gate.shut("who is master is not known")
        assert commit(client, 12) is None
        assert client.connection.sent[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.tables.offsets.query("G", "T1", 0) == 9


@pytest.mark.parametrize(
    ("state", "role", "known"),
    [
        ("open", BrokerRole.ASYNC_MASTER, 1),
        ("open", BrokerRole.SLAVE, -1),
        ("holding", BrokerRole.ASYNC_MASTER, -1),
        ("forwarding", BrokerRole.SLAVE, -1),
        ("closed", BrokerRole.SLAVE, -1),
    ],
)
async def test_what_pulls_commit_goes_the_way_of_other_commits(tmp_path, state, role, known):
    broker = make_broker(tmp_path / "b")
    async with opened(broker) as client:
        broker.tables.topics.create_in_send("T1", "TBW102", 4, False, "")
        client.ask(RequestCode.HEART_BEAT, heartbeat("T1"))
        put(broker)
        if role is BrokerRole.SLAVE:
            broker.store.become_slave()
        if state == "holding":
            broker.gate.close_for(trio.current_time() + 1)
        elif state == "forwarding":
            broker.gate.forward_to("127.0.0.1:1", 60)
        elif state == "closed":
            broker.gate.shut("why")
        pull = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
        reply = client.ask(PULL, **pull, sysFlag=1, commitOffset=1, suspendTimeoutMillis=0, subVersion=1)
        assert reply.code == 0
        assert broker.tables.offsets.query("G", "T1", 0) == known
        assert len(broker.gate._held) == (state == "holding")


async def test_the_end_of_the_log_stays_where_it_is_while_requests_are_held(tmp_path):
    """Nothing at all is stored: not even the event that a consumer asked for an offset that is not there."""
    broker = make_broker(tmp_path)
    async with opened(broker) as client:
        broker.tables.topics.create_in_send("T1", "TBW102", 4, False, "")
        client.ask(RequestCode.HEART_BEAT, heartbeat("T1"))
        put(broker)
        end = broker.store.max_offset
        broker.gate.close_for(trio.current_time() + 1)
        pull = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 99, "maxMsgNums": 32}
        reply = client.ask(PULL, **pull, sysFlag=0, commitOffset=0, suspendTimeoutMillis=0, subVersion=1)
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED
        assert broker.store.max_offset == end


@pytest.mark.parametrize(("member", "host"), [("127.0.0.1:10911", PRODUCER), ("127.0.0.2:10911", None)])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_a_message_is_born_at_the_client_for_whom_a_member_passed_it_on(tmp_path, member, host, code):
    producer = Producer(make_parts(tmp_path))
    members = (GroupMember(address=member, ha_address="", broker_id=1, name="b"),)
    record = GroupRecord(version=1, members=members, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
    state = RoleState(role=BrokerRole.SYNC_MASTER, broker_id=0, promised=EpochId(1, "b"), group=record)
    producer.parts.gate.role_state = lambda: state
    body = (22).to_bytes(4) + bytes(18) if code == 320 else b"hello"
    more = {"m": "true"} if code == 320 else {}
    (answer,) = producer.send(producer.command(body=body, code=code, **more, **{FROM: "10.1.1.1:4000", HOPS: "1"}))
    assert answer.code == 0, answer
    (message,) = producer.stored()
    assert message.born_host == (host or producer.wire.remote_host)


@pytest.mark.parametrize("told", ["", "nobody", "10.1.1.1", "10.1.1.1:x", "10.1.1.1:-1", "10.1.1.1:99999999999"])
async def test_what_is_no_host_is_not_believed_and_hurts_no_other_message(tmp_path, told):
    producer = Producer(make_parts(tmp_path))
    members = (GroupMember(address="127.0.0.1:10911", ha_address="", broker_id=1, name="b"),)
    record = GroupRecord(version=1, members=members, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
    state = RoleState(role=BrokerRole.SYNC_MASTER, broker_id=0, promised=EpochId(1, "b"), group=record)
    producer.parts.gate.role_state = lambda: state
    answers = producer.send(producer.command(), producer.command(**{FROM: told}), producer.command())
    assert sorted((answer.opaque, answer.code) for answer in answers) == [(1, 0), (2, 0), (3, 0)]
    assert {message.born_host for message in producer.stored()} == {producer.wire.remote_host}


async def test_a_gate_opens_some_time_after_the_new_master_was_named(autojump_clock, nursery):
    gate = Gate()
    nursery.start_soon(gate.run)
    gate.forward_to("127.0.0.1:1", 60)
    assert gate.why == "the master is 127.0.0.1:1"
    await trio.sleep(59)
    assert gate.state == "forwarding"
    await trio.sleep(1)
    await settle()
    assert (gate.state, gate.why) == ("open", "")

"""Producer: round robin, retries at other brokers, and the fields of its requests; over a fake broker."""

import re
import time
from functools import partial

import pytest
from attrs import define, field

from tests.cluster.client.helpers import FakeAnswer
from twinlog.cluster.client.api import ClientApi, SendStatus
from twinlog.cluster.client.messages import OutgoingMessage, UniqueIds
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingProtocolError, RequestError
from twinlog.store.record.properties import parse_properties

NAMESRV = "ns:9876"


def route(*brokers: str, queues: int = 2) -> bytes:
    return fastjson.dumps(
        {
            "brokerDatas": [
                {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": f"{name}:10911"}} for name in brokers
            ],
            "queueDatas": [
                {"brokerName": name, "perm": 6, "readQueueNums": queues, "writeQueueNums": queues} for name in brokers
            ],
        }
    )


@define
class FakeServers:
    """Name server and brokers: routes by topic, and the response of each broker to a send."""

    routes: dict[str, bytes]
    codes: dict[str, int | Exception] = field(factory=dict)
    sends: list[tuple[str, RemotingCommand]] = field(factory=list)

    async def begin(self, address, command, *, timeout_ms=3000):
        return FakeAnswer(partial(self.request, address, command))

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3000) -> RemotingCommand:
        assert command.ext is not None
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            assert address == NAMESRV
            body = self.routes.get(command.ext["topic"])
            return RemotingCommand(0 if body else ResponseCode.TOPIC_NOT_EXIST, body=body or b"", remark="no route")
        self.sends.append((address, command))
        code = self.codes.get(address.partition(":")[0], 0)
        if isinstance(code, Exception):
            raise code
        ext = {"msgId": "F00D", "queueId": command.ext["e"], "queueOffset": "7"}
        return RemotingCommand(code, ext=ext, remark=None if code == 0 else "because")

    @property
    def places(self) -> list[tuple[str, str]]:
        return [(address.partition(":")[0], (command.ext or {})["e"]) for address, command in self.sends]


def producer(servers: FakeServers) -> Producer:
    return Producer(ClientApi(servers, (NAMESRV,)))


def message(**fields) -> OutgoingMessage:
    return OutgoingMessage(**{"topic": "T", "body": b"x", **fields})


async def test_queues_take_turns_over_all_brokers():
    servers = FakeServers({"T": route("a", "b")})
    sender = producer(servers)
    for _ in range(5):
        await sender.send(message())
    assert servers.places == [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1"), ("a", "0")]


async def test_the_answer_says_where_the_message_went():
    result = await producer(FakeServers({"T": route("a")})).send(message())
    assert (result.status, result.queue.broker_name, result.queue.queue_id) == (SendStatus.SEND_OK, "a", 0)
    assert (result.queue_offset, result.offset_message_id, result.remark) == (7, "F00D", None)


async def test_the_request_carries_what_the_message_has():
    servers = FakeServers({"T": route("a")})
    sent = message(tags="A", keys="k1 k2", delay_level=3, properties={"colour": "red"}, body=b"body")
    result = await producer(servers).send(sent)
    ((_, command),) = servers.sends
    assert (command.code, command.body) == (RequestCode.SEND_MESSAGE_V2, b"body")
    assert parse_properties((command.ext or {})["i"]) == {
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "WAIT": "true",
        "UNIQ_KEY": result.message_id,
        "colour": "red",
    }


@pytest.mark.parametrize(
    "failure", [RemotingConnectError("a:10911", "refused"), int(ResponseCode.SERVICE_NOT_AVAILABLE), 1, 16, 17]
)
async def test_a_broker_that_fails_is_avoided_in_the_next_try(failure):
    servers = FakeServers({"T": route("a", "b")}, {"a": failure})
    result = await producer(servers).send(message())
    assert [broker for broker, _ in servers.places] == ["a", "b"]
    assert result.queue.broker_name == "b"


async def test_the_same_message_id_goes_with_every_try():
    """So that a consumer can detect a duplicate."""
    servers = FakeServers({"T": route("a", "b")}, {"a": RemotingConnectError("a", "lost")})
    await producer(servers).send(message())
    ids = {parse_properties((command.ext or {})["i"])["UNIQ_KEY"] for _, command in servers.sends}
    assert len(servers.sends) == 2
    assert len(ids) == 1


async def test_three_tries_are_all():
    """Of those in which the message may have arrived; see test_route_pace.py for the others."""
    servers = FakeServers({"T": route("a")}, {"a": RemotingConnectError("a:10911", "lost", sent=True)})
    with pytest.raises(RemotingConnectError):
        await producer(servers).send(message())
    assert len(servers.sends) == 3


async def test_a_refusal_for_good_is_not_tried_elsewhere():
    servers = FakeServers({"T": route("a", "b")}, {"a": ResponseCode.MESSAGE_ILLEGAL})
    with pytest.raises(RequestError, match="because"):
        await producer(servers).send(message())
    assert len(servers.sends) == 1


@pytest.mark.parametrize(
    "status", [SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE]
)
async def test_stored_but_not_safe_is_an_answer_with_its_reason(status):
    servers = FakeServers({"T": route("a", "b")}, {"a": status.value})
    result = await producer(servers).send(message())
    assert (result.status, result.remark) == (status, "because")
    assert len(servers.sends) == 1


async def test_a_topic_that_does_not_exist_takes_its_queues_from_the_default_topic():
    servers = FakeServers({"TBW102": route("a", queues=8)})
    sender = producer(servers)
    for _ in range(5):
        await sender.send(message(topic="New"))
    assert [queue for _, queue in servers.places] == ["0", "1", "2", "3", "0"]
    assert {(command.ext or {})["b"] for _, command in servers.sends} == {"New"}


@pytest.mark.parametrize("routes", [{}, {"T": route("a", queues=0)}])
async def test_no_queue_to_write_to(routes):
    with pytest.raises(NoRouteError):
        await producer(FakeServers(routes)).send(message())


async def test_an_answer_that_makes_no_sense_is_a_protocol_error():
    servers = FakeServers({"T": b'{"queueDatas":[{}]}'})
    with pytest.raises(RemotingProtocolError, match="expected form"):
        await producer(servers).send(message())


@pytest.mark.parametrize("properties", [{"KEYS": "x"}, {"a\x01b": "x"}, {"a": "x\x02"}, {"": "x"}, {"a": ""}])
def test_properties_that_would_not_arrive_are_refused(properties):
    with pytest.raises(ValueError, match="property"):
        message(properties=properties)


def test_unique_ids_look_like_javas_and_never_repeat():
    ids = UniqueIds()
    made = [next(ids) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(re.fullmatch("7F000001[0-9A-F]{24}", each) for each in made)
    assert not set(made) & {next(UniqueIds()) for _ in range(10)}


def test_ids_count_from_the_begin_of_the_month(monkeypatch):
    """As Java's do, also when the month changes meanwhile."""
    now = [time.mktime((2026, 11, 30, 23, 59, 59, 0, 0, -1))]
    monkeypatch.setattr("twinlog.cluster.client.messages.time.time", lambda: now[0])
    ids = UniqueIds()
    assert int(next(ids)[20:28], 16) == (30 * 86400 - 1) * 1000 & 0x7FFFFFFF
    now[0] += 1.5
    assert int(next(ids)[20:28], 16) == 500

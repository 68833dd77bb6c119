"""A name server and a broker in memory, and helpers for messages."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import orjson
import trio
from attrs import define, evolve, field
from trio.testing import memory_stream_pair

from twinlog.cluster.broker.send.requests import split_batch
from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.record.message import Message, body_crc, encode_message
from twinlog.store.record.properties import format_properties, parse_properties

NAMESRV, BROKER, SLAVE, NEIGHBOUR = "127.0.0.1:9876", "127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.1:10931"


@define
class FakeAnswer:
    """An answer that has to be waited for."""

    wait: Callable[[], Awaitable[RemotingCommand]]
    is_here: bool = False

    async def __call__(self) -> RemotingCommand:
        return await self.wait()


def received_message(offset, *, body=b"x", queue_id=0, reconsume_times=0, properties=None) -> ReceivedMessage:
    return ReceivedMessage(
        queue=MessageQueue("T", "b", queue_id),
        queue_offset=offset,
        message_id=f"ID{offset}",
        offset_message_id=f"OFFSET{offset}",
        tags="",
        keys="",
        properties=dict(properties or {}),
        body=body,
        born_timestamp=1,
        born_host="127.0.0.1:1",
        store_timestamp=2,
        reconsume_times=reconsume_times,
        phy_offset=offset * 100,
    )


@define(eq=False)
class FakeBroker:
    """Name server and broker in one: `connect` gives a client's end of a stream to either.

    `answers`: what a request code gets instead, once for each entry of its list; None: no answer at all.
    """

    nursery: trio.Nursery
    topics: dict[str, int] = field(factory=lambda: {"TBW102": 4})  # Queues by topic.
    records: dict[tuple[str, int], list[bytes]] = field(factory=lambda: defaultdict(list))
    offsets: dict[tuple[str, str, int], int] = field(factory=dict)  # By group, topic and queue.
    members: dict[str, dict[str, trio.abc.Stream]] = field(factory=lambda: defaultdict(dict))
    locks: dict[tuple[str, int], str] = field(factory=dict)
    subscriptions: dict[str, list[str]] = field(factory=dict)
    asked: list[RemotingCommand] = field(factory=list)
    asked_of: list[tuple[str, int]] = field(factory=list)  # The same by address and code.
    members_by_id: dict[str, str] = field(factory=lambda: {"0": BROKER})  # As routes tell them.
    suggested: int = 0  # Whom pulls are sent to.
    answers: dict[int, list[RemotingCommand | None]] = field(factory=lambda: defaultdict(list))
    told: list[RemotingCommand] = field(factory=list)  # What clients answered.
    is_down: bool = False
    silence: trio.Event | None = None  # Whoever connects waits for it.
    neighbours: dict[str, tuple[str, "FakeBroker"]] = field(factory=dict)  # Broker groups in our routes, and where.
    connections: list[trio.StapledStream] = field(factory=list)
    _changed: trio.Event = field(factory=trio.Event)
    _sending: dict[trio.StapledStream, trio.Lock] = field(factory=lambda: defaultdict(trio.Lock))

    async def connect(self, address):
        await trio.lowlevel.checkpoint()
        for where, neighbour in self.neighbours.values():
            if where == address:
                return await neighbour.connect(address)
        if self.silence is not None:
            await self.silence.wait()
        if self.is_down and address != NAMESRV:
            raise OSError("refused")
        ours, theirs = memory_stream_pair()
        if address != NAMESRV:
            self.connections.append(ours)
        self.nursery.start_soon(self._serve, ours, address)
        return theirs

    async def _serve(self, stream, address):
        reader = FrameReader()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in stream:
                for frame in reader.feed(bytes(data)):
                    request = decode(frame)
                    self.asked_of.append((address, request.code))
                    self._take(stream, request)

    def _take(self, stream, request):
        """Requests in the order of arrival; responses may be sent in another order."""
        if request.is_response:
            self.told.append(request)
            return
        self.asked.append(request)
        if not self.answers[request.code]:
            self.nursery.start_soon(self._handle, stream, request)
        elif (answer := self.answers[request.code].pop(0)) is not None:
            answer = RemotingCommand.response_to(request, answer.code, ext=answer.ext, remark=answer.remark)
            self.nursery.start_soon(self._send, stream, answer)

    async def _handle(self, stream, request):
        answer = await getattr(self, f"_on_{request.code}")(request, stream)
        if answer is not None and not request.is_oneway:
            await self._send(stream, answer)

    async def _send(self, stream, command):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with self._sending[stream]:
                await stream.send_all(encode(command))

    async def tell(self, group, client_id, request):
        """Send a request to a client."""
        await self._send(self.members[group][client_id], request)

    def codes(self, *wanted):
        return [request for request in self.asked if request.code in wanted]

    def store(self, topic, queue_id, *bodies, tags="", **properties):
        """Put messages into a queue."""
        for body in bodies:
            raw = format_properties({"TAGS": tags, **properties} if tags else properties).encode()
            at = len(self.records[topic, queue_id])
            record = Message(topic, queue_id, body, raw, queue_offset=at, phy_offset=at * 1000 + queue_id)
            self.records[topic, queue_id].append(_encoded(record))
        self._changed.set()
        self._changed = trio.Event()

    # ---- Handlers

    async def _on_105(self, request, stream):
        topic = request.ext["topic"]
        if topic not in self.topics:
            return RemotingCommand.response_to(request, ResponseCode.TOPIC_NOT_EXIST, remark="none")
        groups = {"b": self.members_by_id} | {name: {"0": where} for name, (where, _) in self.neighbours.items()}
        count = {"perm": 7, "readQueueNums": self.topics[topic], "writeQueueNums": self.topics[topic]}
        brokers = [{"brokerName": name, "cluster": "C", "brokerAddrs": members} for name, members in groups.items()]
        body = orjson.dumps({"brokerDatas": brokers, "queueDatas": [{"brokerName": name, **count} for name in groups]})
        return RemotingCommand.response_to(request, 0, body=body)

    async def _on_34(self, request, stream):
        beat = orjson.loads(bytes(request.body))
        for group in beat["producerDataSet"]:
            self.members[group["groupName"]][beat["clientID"]] = stream
        for group in beat["consumerDataSet"]:
            self.members[group["groupName"]][beat["clientID"]] = stream
            self.subscriptions[group["groupName"]] = [each["topic"] for each in group["subscriptionDataSet"]]
            self.topics.setdefault(f"%RETRY%{group['groupName']}", 1)
        return RemotingCommand.response_to(request, 0)

    async def _on_35(self, request, stream):
        for name in ("producerGroup", "consumerGroup"):
            self.members[request.ext.get(name, "")].pop(request.ext["clientID"], None)
        return RemotingCommand.response_to(request, 0)

    async def _on_38(self, request, stream):
        members = list(self.members[request.ext["consumerGroup"]])
        if not members:
            return RemotingCommand.response_to(request, 1, remark="nobody")
        return RemotingCommand.response_to(request, 0, body=orjson.dumps({"consumerIdList": members}))

    async def _on_310(self, request, stream):
        ext = request.ext
        properties = parse_properties(ext["i"])
        at = len(self.records[ext["b"], int(ext["e"])])
        self.store(ext["b"], int(ext["e"]), bytes(request.body), **properties)
        fields = {"msgId": f"{at:032X}", "queueId": ext["e"], "queueOffset": str(at)}
        return RemotingCommand.response_to(request, 0, ext=fields)

    async def _on_320(self, request, stream):
        ext = request.ext
        key = ext["b"], int(ext["e"])
        at = len(self.records[key])
        for inner in split_batch(request.body):
            self.store(*key, bytes(inner.body), **parse_properties(inner.properties.decode()))
        return RemotingCommand.response_to(
            request, 0, ext={"msgId": f"{at:032X}", "queueId": ext["e"], "queueOffset": str(at)}
        )

    async def _on_11(self, request, stream):
        ext = request.ext
        key, offset = (ext["topic"], int(ext["queueId"])), int(ext["queueOffset"])
        if int(ext["sysFlag"]) & 1:
            self.offsets[ext["consumerGroup"], *key] = int(ext["commitOffset"])
        if int(ext["sysFlag"]) & 2:
            with trio.move_on_after(int(ext["suspendTimeoutMillis"]) / 1000):
                while offset == len(self.records[key]):
                    await self._changed.wait()
        found = self.records[key][offset : offset + int(ext["maxMsgNums"])]
        end = len(self.records[key])
        code = 0 if found else 19 if offset == end else 21
        fields = {"nextBeginOffset": str(offset + len(found) if code != 21 else end)}
        fields |= {"minOffset": "0", "maxOffset": str(end), "suggestWhichBrokerId": str(self.suggested)}
        return RemotingCommand.response_to(request, code, ext=fields, body=b"".join(found))

    async def _on_14(self, request, stream):
        key = request.ext["consumerGroup"], request.ext["topic"], int(request.ext["queueId"])
        if key not in self.offsets:
            return RemotingCommand.response_to(request, ResponseCode.QUERY_NOT_FOUND, remark="none")
        return RemotingCommand.response_to(request, 0, ext={"offset": str(self.offsets[key])})

    async def _on_15(self, request, stream):
        key = request.ext["consumerGroup"], request.ext["topic"], int(request.ext["queueId"])
        self.offsets[key] = int(request.ext["commitOffset"])
        return RemotingCommand.response_to(request, 0)

    async def _on_30(self, request, stream):
        end = len(self.records[request.ext["topic"], int(request.ext["queueId"])])
        return RemotingCommand.response_to(request, 0, ext={"offset": str(end)})

    async def _on_31(self, request, stream):
        return RemotingCommand.response_to(request, 0, ext={"offset": "0"})

    async def _on_36(self, request, stream):
        return RemotingCommand.response_to(request, 0)

    async def _on_37(self, request, stream):
        return None

    async def _on_41(self, request, stream):
        body = orjson.loads(bytes(request.body))
        given = []
        for each in body["mqSet"]:
            if self.locks.setdefault((each["topic"], each["queueId"]), body["clientId"]) == body["clientId"]:
                given.append(each)
        return RemotingCommand.response_to(request, 0, body=orjson.dumps({"lockOKMQSet": given}))

    async def _on_42(self, request, stream):
        body = orjson.loads(bytes(request.body))
        for each in body["mqSet"]:
            if self.locks.get((each["topic"], each["queueId"])) == body["clientId"]:
                del self.locks[each["topic"], each["queueId"]]
        return RemotingCommand.response_to(request, 0)

    async def _on_46(self, request, stream):
        return RemotingCommand.response_to(request, 0)


def _encoded(record: Message) -> bytes:
    """With the CRC that readers check."""
    return encode_message(evolve(record, body_crc=body_crc(record.body)))


def request(code: RequestCode, body: object = None, *, opaque: int = 1, oneway: bool = False, **ext: str):
    """A request of a broker."""
    raw = b"" if body is None else body if isinstance(body, bytes) else fastjson.dumps(body)
    return RemotingCommand(code, opaque=opaque, flag=2 if oneway else 0, ext=ext, body=raw)


ONE = {"T": "*"}  # What most consumers of these tests want.


async def bodies(consumer, count):
    """Consume `count` messages; returns their bodies."""
    found = []
    with trio.fail_after(600):
        async for batch in consumer:
            found += [each.body for each in batch]
            if len(found) >= count:
                await batch.done()
                return found


async def idle(seconds):
    """Let virtual time pass, with everything that happens meanwhile."""
    await trio.sleep(seconds)


def mine(consumer):
    """The queues of T that it reads."""
    return {queue for queue in consumer.assignment.readers if queue.topic == "T"}


def message(body=b"x", **more):
    """To the topic T."""
    return OutgoingMessage(**{"topic": "T", "body": body, **more})

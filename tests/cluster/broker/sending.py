"""A SendProcessor over a real store and real tables, without a network and services."""

from pathlib import Path
from struct import pack

from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.processors.send import SendProcessor
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send.requests import SendRequests
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.topics import TopicConfigManager, built_in_topics
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand, decode
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import Message, decode_message, host_bytes

ADDRESS, CLIENT = "127.0.0.1:10911", "127.0.0.1:40000"
NOW_MS = 1_700_000_000_000


@define(eq=False)
class Wire:
    """The connection of a producer; keeps what it is sent."""

    remote_address: str = CLIENT
    remote_host: bytes = host_bytes(CLIENT)
    answers: list[RemotingCommand] = field(factory=list)
    writes: int = 0

    def write(self, *buffers):
        data, self.writes = b"".join(buffers), self.writes + 1
        while data:
            size = 4 + int.from_bytes(data[:4])
            self.answers.append(decode(data[4:size]))
            data = data[size:]

    def send(self, command):
        self.answers.append(command)


@define(eq=False)
class Waits:
    """A GroupTransferService or FlushService that holds everything until it is told."""

    held: list[tuple] = field(factory=list)
    is_synchronous: bool = True
    refusal: str | None = None

    @property
    def waiting(self):
        return len(self.held)

    def wait(self, end_offset, sink, frame):
        self.held.append((end_offset, sink, frame))

    def wait_each(self, answers, sink):
        for end_offset, frame in answers:
            self.wait(end_offset, sink, frame)

    def release(self):
        held, self.held = self.held, []
        for _, sink, frame in held:
            sink.answer([frame])

    def refuse(self, status, reason):
        held, self.held = self.held, []
        for _, sink, frame in held:
            sink.refuse([frame], status, reason)


@define(eq=False)
class SendingParts:
    """What a SendProcessor is made of."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    transfer: Waits = field(factory=Waits)
    gate: Gate = field(factory=Gate)
    topics_writer: TableWriter = field(init=False)
    stats: BrokerStatsManager = field(factory=lambda: BrokerStatsManager("C1"))

    def __attrs_post_init__(self):
        self.topics_writer = TableWriter(JsonFile(self.store.config.root / "topics.json"), self.topics.to_json)


def make_parts(root: Path, *, now_ms=lambda: NOW_MS, address=ADDRESS, broker=None, **store_options) -> SendingParts:
    """With an open store of small files; `broker` holds options of BrokerConfig, the others are StoreConfig's."""
    options = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000, **store_options}
    config = BrokerConfig(**{"broker_name": "broker-a", "broker_cluster_name": "C1", **(broker or {})})
    settings = Settings(config=config)
    settings.address = address
    topics = TopicConfigManager(now_ms, auto_create=config.auto_create_topic_enable)
    topics.add_built_in(built_in_topics(config))
    store = MessageStore(StoreConfig(root=root, **options), StoreHooks(now_ms=now_ms))
    store.load()
    return SendingParts(settings, store, topics, SubscriptionGroupManager(now_ms))


@define(eq=False)
class Producer:
    """Sends through a SendProcessor as the server would."""

    parts: SendingParts
    wire: Wire = field(factory=Wire)
    processor: SendProcessor = field(init=False)
    opaque: int = 0

    def __attrs_post_init__(self):
        parts = self.parts
        requests = SendRequests(parts.settings, parts.store, parts.topics, parts.groups, parts.stats, parts.gate)
        self.processor = SendProcessor(
            parts.settings, parts.store, requests, parts.transfer, parts.topics_writer, parts.stats, parts.gate
        )

    def command(self, topic="T1", body=b"hello", *, properties="UNIQ_KEY\x01id", **more) -> RemotingCommand:
        """A request of code 310; `more` are letters of its header, and `code`, `flag`, `serialize_type`, `version`."""
        self.opaque += 1
        fields = {"code": RequestCode.SEND_MESSAGE_V2, "flag": 0, "serialize_type": 0, "version": 409}
        fields |= {name: more.pop(name) for name in fields.keys() & more.keys()}
        ext = {"a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
        ext |= {"i": properties, "j": "0", "k": "false", "m": "false"}
        ext |= {name: str(value) for name, value in more.items()}
        return RemotingCommand(opaque=self.opaque, ext=ext, body=body, **fields)

    def send(self, *commands: RemotingCommand) -> list[RemotingCommand]:
        """Process them as the requests of one read; the answers that this brought."""
        before = len(self.wire.answers)
        self.processor.process(self.wire, list(commands))
        return self.wire.answers[before:]

    def stored(self) -> list[Message]:
        """Every message in the log."""
        log, messages, at = self.parts.store.commit_log, [], 0
        while at < log.max_offset:
            head = log.read(at, 8)
            size = int.from_bytes(head[:4])
            if head[4:] != b"\xcb\xd4\x31\x94":
                messages.append(decode_message(log.read(at, size)))
            at += size
        return messages


def inner_message(flag, body, properties):
    """One message in the body of a batch request."""
    size = 22 + len(body) + len(properties)
    return pack(">iiiii", size, 0, 0, flag, len(body)) + body + pack(">h", len(properties)) + properties

"""A broker whose handlers can be called without a network, and clients to call them."""

import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import RemotingCommand, decode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.response_template import TemplateReply
from twinlog.ha.config import HAConfig
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import host_bytes
from twinlog.store.record.properties import format_properties, tags_code

HOST = host_bytes("127.0.0.1:10911")


@define(eq=False)
class FakeConnection:
    """What handlers see of a client; keeps what it is sent."""

    remote_address: str = "127.0.0.1:5000"
    remote_host: bytes = HOST
    closed: bool = False
    unsent_bytes: int = 0
    on_close: list = field(factory=list)
    sent: list[RemotingCommand] = field(factory=list)
    answers: dict[int, Reply] = field(factory=dict)  # By request code; a client without one stays silent.

    def send(self, command):
        self.sent.append(command)

    async def call(self, command, timeout_ms):
        self.sent.append(command)
        if command.code not in self.answers:
            await trio.sleep(timeout_ms / 1000)
            raise RemotingTimeoutError(self.remote_address, command.code, timeout_ms)
        reply = self.answers[command.code]
        return RemotingCommand(reply.code, flag=1, remark=reply.remark, ext=reply.ext, body=reply.body)

    def write(self, *buffers):
        self.sent.append(decode(b"".join(buffers)[4:]))

    def cork(self):
        """What is written is there at once all the same."""

    def uncork(self):
        """Nothing was kept back."""

    def close(self):
        self.closed = True
        for callback in self.on_close:
            callback(self)


@define(eq=False)
class FakeForwarder:
    """Stands for the way to another member; keeps what is passed on, and what is to be called once that has done it."""

    passed: list = field(factory=list)
    taken: list = field(factory=list)

    def aim(self, address):
        pass

    def forward(self, _connection, command, *, by_member=False, taken=None):
        self.passed.append(command)
        self.taken.append(taken)


@define(eq=False)
class Client:
    """Calls handlers as the server does."""

    broker: Broker
    connection: FakeConnection = field(factory=FakeConnection)
    opaque: int = 0
    language: str = "JAVA"
    version: int = 409
    table: Mapping = field(init=False)

    def __attrs_post_init__(self):
        self.table = self.broker.main_port

    def ask(self, code: int, body: object = b"", **ext: object) -> Reply | None:
        """The reply, with errors made replies; None when it is to come later. Values of ext are made texts."""
        return self._call(code, body, ext)

    async def ask_async(self, code: int, body: object = b"", **ext: object) -> Reply | None:
        pending = self._call(code, body, ext)
        try:
            return await pending
        except RequestError as error:
            return Reply(error.code, error.remark)

    def _call(self, code, body, ext):
        handler = self.table[code]
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in ext.items()}
        raw = body if isinstance(body, bytes) else fastjson.dumps(body)
        self.opaque += 1
        command = RemotingCommand(code, self.opaque, ext=texts, body=raw, language=self.language, version=self.version)
        try:
            reply = handler.function(decode_header(handler.header, texts), Request(self.connection, command))
        except RequestError as error:
            return Reply(error.code, error.remark)
        if isinstance(reply, TemplateReply):
            template = reply.template
            return Reply(template.code, template.remark, template.ext(reply.values), reply.body)
        return reply


def make_broker(
    root: Path,
    *,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    ha_config: HAConfig | None = None,
    server: ServerConfig | None = None,
    file_size: int = 1 << 20,
    acl: AclConfig | None = None,
    etcd: EtcdConfig | None = None,
    **options: object,
) -> Broker:
    """A broker with small files; `options` are BrokerConfig's."""
    settings = {"broker_name": "broker-a", "broker_ip1": "127.0.0.1", "listen_port": 10911, **options}
    if role is BrokerRole.SLAVE:
        settings.setdefault("broker_id", 1)
    store = StoreConfig(
        root=root,
        broker_role=role,
        mapped_file_size_commit_log=file_size,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    return wiring.make_broker(BrokerConfig(**settings), store, ha_config, server, acl_config=acl, etcd_config=etcd)


@contextlib.asynccontextmanager
async def opened(broker: Broker) -> AsyncIterator[Client]:
    """Handlers can be called; no service runs."""
    broker.store.load()
    try:
        yield Client(broker)
    finally:
        await broker.store.close()


def put(broker: Broker, topic: str = "T1", **more: object):
    """Store one message, bring the queues up to date and answer who waited for it; where it lies."""
    result = append(broker, topic, **more)
    broker.store.dispatch_pending()
    for listener in broker.store.on_dispatched:
        listener()
    return result


def append(
    broker: Broker, topic: str = "T1", *, queue_id: int = 0, tags: str = "", body: bytes = b"hello", **more: object
):
    """Store one message; where it lies."""
    properties = {"TAGS": tags, "UNIQ_KEY": "id"} if tags else {"UNIQ_KEY": "id"}
    message = PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=format_properties({**properties, **more.pop("properties", {})}).encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
        tags_code=more.pop("tags_code", tags_code(tags)),
        **more,
    )
    (result,) = broker.store.put([message])
    return result


def heartbeat(*topics: str, group: str = "G", client_id: str = "c1", expression: str = "*", version: int = 1):
    """The body of 34 of a consumer."""
    subscriptions = [{"topic": topic, "subString": expression, "subVersion": version} for topic in topics]
    return {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": subscriptions,
            }
        ],
        "producerDataSet": [],
    }


def read(reply: Reply) -> Any:
    """The JSON body of a success."""
    assert reply.code == 0, reply.remark
    return fastjson.loads(reply.body)


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(5):
        await trio.lowlevel.checkpoint()


class SlowFile(JsonFile):
    """A file whose saves wait until the test lets them, or fail when it says so."""

    def __init__(self, path):
        super().__init__(path)
        object.__setattr__(self, "go", threading.Semaphore(0))
        object.__setattr__(self, "saved", [])
        object.__setattr__(self, "error", None)

    def save_table(self, table):
        self.go.acquire()
        if self.error is not None:
            raise self.error
        self.saved.append(dict(table))


def sql(text, version, topic="T", kind="SQL92"):
    return SubscriptionData(topic=topic, sub_string=text, sub_version=version, expression_type=kind)

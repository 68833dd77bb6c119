"""One client: connections, routes, heartbeats, and what brokers ask of it. Producers and consumers share it.

    async with Client("127.0.0.1:9876") as client:
        await client.producer("greeters").send(OutgoingMessage(topic="Greetings", body=b"hello"))

Sources: MQClientInstance, ClientRemotingProcessor (RocketMQ 4.9.8).
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol

import structlog
import trio
from attrs import define, field

from twinlog.cluster.client.api import DEFAULT_TOPIC, ClientApi, name_servers
from twinlog.cluster.client.heartbeat import ConsumerData, heartbeat, instance_name, own_address
from twinlog.cluster.client.messages import UniqueIds
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.routes import REFRESH_SECONDS, Routes
from twinlog.cluster.client.tasks import Service, in_parallel
from twinlog.cluster.remoting.client import RemotingClient, connect_tcp
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.store.record.message import host_bytes

HEARTBEAT_SECONDS = 30.0
LEAVE_SECONDS = 3.0  # For all brokers together, when the client closes.

log = structlog.get_logger(__name__)


class GroupMember(Protocol):
    """A consumer of this client, as brokers know it."""

    @property
    def data(self) -> ConsumerData: ...

    def on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None: ...


OnRequest = Callable[[str, RemotingCommand], RemotingCommand | None]


def _name_servers(given: "str | Iterable[str]") -> tuple[str, ...]:
    return name_servers(given) if isinstance(given, str) else tuple(given)


@define(eq=False)
class Client(Service):
    """Name servers as `one:9876;two:9876`, or a tuple of them. Use it in `async with`.

    `timeout_ms`: of each request. `instance`: the last part of the client id; one of its own by default. `sign`, `tls` and
    `connect` are RemotingClient's.
    """

    namesrv: tuple[str, ...] = field(converter=_name_servers)
    timeout_ms: int = field(default=3000, kw_only=True)
    instance: str = field(factory=instance_name, kw_only=True)
    sign: Callable[[RemotingCommand], None] | None = field(default=None, kw_only=True, repr=False)
    tls: ssl.SSLContext | None = field(default=None, kw_only=True, repr=False)
    connect: Callable[[str], Awaitable[trio.abc.Stream]] = field(default=connect_tcp, kw_only=True, repr=False)
    remoting: RemotingClient = field(init=False, repr=False)
    api: ClientApi = field(init=False, repr=False)
    routes: Routes = field(init=False, repr=False)
    client_id: str = field(init=False)
    ids: UniqueIds = field(init=False, repr=False)
    consumers: dict[str, GroupMember] = field(factory=dict, init=False, repr=False)
    producers: set[str] = field(factory=set, init=False)
    handlers: dict[int, OnRequest] = field(factory=dict, init=False, repr=False)  # Of 39 and 326.
    nursery: trio.Nursery | None = field(default=None, init=False, repr=False)
    _told: dict[str, tuple[object, int]] = field(factory=dict, init=False, repr=False)  # Who has which heartbeat.
    _generation: int = field(default=0, init=False, repr=False)  # Of what heartbeats say.
    _default_asked: float = field(default=-inf, init=False, repr=False)  # When, for the default topic's brokers.

    def __attrs_post_init__(self) -> None:
        if not self.namesrv:
            raise ValueError("no name server is given: allowed is HOST:PORT, several with a semicolon between them")
        host = own_address(self.namesrv[0])
        self.client_id = f"{host}@{self.instance}"
        self.ids = UniqueIds(host_bytes(f"{host}:0")[:-4])
        self.remoting = RemotingClient(
            on_request_from=self.on_request, sign=self.sign, tls=self.tls, connect=self.connect
        )
        self.api = ClientApi(self.remoting, self.namesrv, self.timeout_ms)
        self.routes = Routes(self.api)

    # ---- What it is for

    def producer(self, group: str, **options: Any) -> Producer:
        """A producer of this group; `options` are Producer's. Brokers hear of the group with the next heartbeat."""
        self.join(producer=group)
        return Producer(self.api, group, routes=self.routes, ids=self.ids, **options)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then it takes leave of the brokers."""
        async with trio.open_nursery() as connections:
            # What closes uses the connections still.
            scope = await connections.start(self._connect)
            try:
                async with trio.open_nursery() as self.nursery:
                    self.nursery.start_soon(self._every, HEARTBEAT_SECONDS, self.beat)
                    self.nursery.start_soon(self._every, REFRESH_SECONDS, self.routes.refresh)
                    task_status.started()
            finally:
                self.nursery = None
                with trio.move_on_after(LEAVE_SECONDS, shield=True):
                    await in_parallel(partial(self.leave, producer=group) for group in sorted(self.producers))
                    await self.remoting.flush()
                scope.cancel()

    async def _connect(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.remoting.run)
                task_status.started(scope)

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(seconds)
            await do()

    # ---- Groups

    def join(self, *, producer: str = "", consumer: GroupMember | None = None) -> None:
        """Name a group in heartbeats from now on. Raises ValueError when this client has a consumer of the group."""
        if producer and producer not in self.producers:
            self.producers.add(producer)
            self._generation += 1
        if consumer is not None:
            if consumer.data.group in self.consumers:
                raise ValueError(f"this client has a consumer of the group {consumer.data.group} already")
            self.consumers[consumer.data.group] = consumer
            self._generation += 1

    async def leave(self, *, producer: str = "", consumer: str = "") -> None:
        """Tell every broker that it need not count on this client any more; what cannot be told they find out."""
        self.producers.discard(producer)
        self.consumers.pop(consumer, None)
        told = self.remoting.addresses & self._told.keys()
        await in_parallel(partial(self._leave_one, address, producer, consumer) for address in told)

    async def _leave_one(self, address: str, producer: str, consumer: str) -> None:
        try:
            await self.api.unregister(address, self.client_id, producer=producer, consumer=consumer)
        except RemotingError as error:
            log.info("a broker was not told that a group leaves", peer=address, error=str(error))

    async def beat(self) -> None:
        """Heartbeats to every known broker; slaves only get those of consumers."""
        await self.introduce(self.routes.addresses(masters_only=not self.consumers), again=True)

    async def introduce(self, addresses: Iterable[str] | None = None, *, again: bool = False) -> None:
        """Let brokers know this client as it is now, those that do not yet: all that are known, or these."""
        if addresses is None:
            addresses = self.routes.addresses(masters_only=not self.consumers)
        generation = self._generation
        body = heartbeat(self.client_id, self.producers, [each.data for each in self.consumers.values()])
        async with trio.open_nursery() as nursery:
            for address in addresses:
                if again or self._told.get(address) != (self.remoting.connection_of(address), generation):
                    nursery.start_soon(self._beat_one, address, body, generation)

    async def _beat_one(self, address: str, body: bytes, generation: int) -> None:
        try:
            await self.api.heartbeat(address, body)
        except RemotingError as error:
            self._told.pop(address, None)
            log.info("a heartbeat has failed", peer=address, error=str(error))
        else:
            self._told[address] = self.remoting.connection_of(address), generation

    async def be_known(self, topic: str) -> None:
        """Let those brokers know this client that take the topic's messages, or create topics: replies and check-backs come
        from them. Raises NoRouteError, RemotingError.
        """
        await self.routes.publish(topic)
        if trio.current_time() >= self._default_asked + REFRESH_SECONDS:
            self._default_asked = trio.current_time()
            try:
                await self.routes.find(DEFAULT_TOPIC)
            except RemotingError as error:
                log.info("the default topic's brokers are not known", error=str(error))
        await self.introduce()

    # ---- What brokers ask

    def on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """Give a broker's request to whom it concerns; refuse what nobody knows."""
        if handler := self.handlers.get(request.code):
            return handler(address, request)
        ext = request.ext or {}
        consumer = self.consumers.get(ext.get("consumerGroup") or ext.get("group") or "")
        if consumer is not None:
            return consumer.on_request(address, request)
        remark = f"no consumer here takes request {request.code}"
        known = {RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.GET_CONSUMER_RUNNING_INFO}
        code = ResponseCode.SYSTEM_ERROR if request.code in known else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return RemotingCommand.response_to(request, code, remark=remark)

    def start_soon(self, do: Callable[[], Awaitable[object]]) -> None:
        """In the background, while the client lives; an error of `do` is logged."""
        if self.nursery is not None:
            self.nursery.start_soon(_guarded, do)


async def _guarded(do: Callable[[], Awaitable[object]]) -> None:
    try:
        await do()
    except Exception:
        log.exception("what a broker asked for has failed")

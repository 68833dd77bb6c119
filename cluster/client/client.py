"""One client: its connections, routes, heartbeats, and the requests that brokers make. Producers and consumers share it.

    async with Client("127.0.0.1:9876") as client:
        await client.producer("greeters").send(OutgoingMessage(topic="Greetings", body=b"hello"))

Sources: MQClientInstance, ClientRemotingProcessor (RocketMQ 4.9.8).
"""

import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Protocol

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.client.api import DEFAULT_TOPIC, ClientApi, name_servers
from twinlog.cluster.client.messages import COMPRESS_FROM, UniqueIds
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.routes import LOOK_SECONDS, REFRESH_SECONDS, Routes
from twinlog.cluster.client.service import Service
from twinlog.cluster.client.subscription import ConsumerData, heartbeat
from twinlog.cluster.client.tasks import every, in_parallel
from twinlog.cluster.remoting.client import Connect, RemotingClient, connect_tcp
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.names import is_ip, split_address
from twinlog.store.record.message import host_bytes
from twinlog.store.util.late_logger import LateLogger

HEARTBEAT_SECONDS = 30.0
LEAVE_SECONDS = 3.0  # Time limit for unregistering at all brokers when the client closes.

log = LateLogger(__name__)


class GroupMember(Protocol):
    """A consumer of this client."""

    @property
    def data(self) -> ConsumerData: ...

    def on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None: ...


OnRequest = Callable[[str, RemotingCommand], RemotingCommand | None]


_ELSEWHERE = "192.0.2.1"  # An IP of the default route, that nobody has: RFC 5737.


def own_address(namesrv: str) -> str:
    """This machine's address on the route to that name server, on its default route if that has a host name; nothing is sent.
    127.0.0.1 without a route.
    """
    try:
        host, port = split_address(namesrv)
        host = host if is_ip(host) else _ELSEWHERE  # Resolving a name would take time.
        no_names = socket.AI_NUMERICHOST
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=no_names)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def instance_name() -> str:
    """A unique instance name, in the form of Java's clients."""
    return f"{os.getpid()}#{time.monotonic_ns()}"


@define(eq=False)
class Client(Service):
    """Connection to a cluster, for any number of producers and consumers. Use it in `async with`.

    `namesrv`: name servers as `one:9876;two:9876`, or a tuple. `timeout_ms`: time limit of each request. `instance`: the last
    part of the client id, unique by default. `sign`: a signer of requests, see make_signer. `tls`: makes all connections TLS
    ones. `connect`: opens connections instead of TCP.
    """

    namesrv: tuple[str, ...] = field(converter=name_servers)
    timeout_ms: int = field(default=3000, kw_only=True)
    instance: str = field(factory=instance_name, kw_only=True)
    sign: Callable[[RemotingCommand], None] | None = field(default=None, kw_only=True, repr=False)
    tls: ssl.SSLContext | None = field(default=None, kw_only=True, repr=False)
    connect: Connect = field(default=connect_tcp, kw_only=True, repr=False)
    remoting: RemotingClient = field(init=False, repr=False)
    api: ClientApi = field(init=False, repr=False)
    routes: Routes = field(init=False, repr=False)
    client_id: str = field(init=False)
    ids: UniqueIds = field(init=False, repr=False)
    consumers: dict[str, GroupMember] = field(factory=dict, init=False, repr=False)
    producers: set[str] = field(factory=set, init=False)
    handlers: dict[int, OnRequest] = field(factory=dict, init=False, repr=False)  # Of requests 39 and 326.
    task_group: anyio.abc.TaskGroup | None = field(default=None, init=False, repr=False)
    _beaten: dict[str, tuple[object, int]] = field(factory=dict, init=False, repr=False)  # Heartbeat that a broker has.
    _generation: int = field(default=0, init=False, repr=False)  # Counts changes of what heartbeats say.
    _default_found_at: float = field(default=-inf, init=False, repr=False)  # Time of the default topic's last request.

    def __attrs_post_init__(self) -> None:
        if not self.namesrv:
            raise ValueError("no name server is given: give HOST:PORT, or several separated by semicolons")
        host = own_address(self.namesrv[0])
        self.client_id = f"{host}@{self.instance}"
        self.ids = UniqueIds(host_bytes(f"{host}:0")[:-4])
        self.remoting = RemotingClient(on_request=self.on_request, sign=self.sign, tls=self.tls, connect=self.connect)
        self.api = ClientApi(self.remoting, self.namesrv, self.timeout_ms)
        self.routes = Routes(self.api)

    # ---- For applications

    def producer(
        self,
        group: str,
        *,
        tries_max: int = 3,
        compress_from: int | None = COMPRESS_FROM,
        retry_unsafe: bool = False,
    ) -> Producer:
        """Make a producer of this group; the options are Producer's. The next heartbeat registers the group."""
        self.join(producer=group)
        return Producer(
            self.api,
            group,
            tries_max,
            compress_from=compress_from,
            retry_unsafe=retry_unsafe,
            routes=self.routes,
            ids=self.ids,
        )

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, then unregister at the brokers. `async with` does this."""
        async with anyio.create_task_group() as connections:
            # Closing uses the connections still.
            scope = await connections.start(self._connect)
            try:
                async with anyio.create_task_group() as self.task_group:
                    self.task_group.start_soon(every, HEARTBEAT_SECONDS, partial(self.introduce, again=True))
                    self.task_group.start_soon(every, REFRESH_SECONDS, self.routes.refresh)
                    self.task_group.start_soon(every, LOOK_SECONDS, self.routes.look)
                    task_status.started()
            finally:
                self.task_group = None
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await in_parallel(partial(self.leave, producer=group) for group in sorted(self.producers))
                    await self.remoting.flush()
                scope.cancel()

    async def _connect(self, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
        with anyio.CancelScope(shield=True) as scope:
            async with anyio.create_task_group() as task_group:
                await task_group.start(self.remoting.run)
                task_status.started(scope)

    # ---- Groups

    def join(self, *, producer: str = "", consumer: GroupMember | None = None) -> None:
        """Internal: name a group in heartbeats. Raises ValueError when this client has a consumer of the group."""
        if producer and producer not in self.producers:
            self.producers.add(producer)
            self._generation += 1
        if consumer is not None:
            if consumer.data.group in self.consumers:
                raise ValueError(f"this client has a consumer of the group {consumer.data.group} already")
            self.consumers[consumer.data.group] = consumer
            self._generation += 1

    async def leave(self, *, producer: str = "", consumer: str = "") -> None:
        """Internal: unregister a group at every broker. A broker that is not reached notices when the connection ends."""
        self.producers.discard(producer)
        self.consumers.pop(consumer, None)
        beaten = self.remoting.addresses & self._beaten.keys()
        await in_parallel(partial(self._leave_one, address, producer, consumer) for address in beaten)

    async def _leave_one(self, address: str, producer: str, consumer: str) -> None:
        try:
            await self.api.unregister(address, self.client_id, producer=producer, consumer=consumer)
        except RemotingError as error:
            log.info("group not unregistered at a broker", peer=address, error=str(error))

    async def introduce(self, *, again: bool = False) -> None:
        """Internal: send heartbeats to known brokers without a current one, or to all; slaves only get those of consumers."""
        addresses = self.routes.addresses(masters_only=not self.consumers)
        generation = self._generation
        body = heartbeat(self.client_id, self.producers, [each.data for each in self.consumers.values()])
        async with anyio.create_task_group() as task_group:
            for address in addresses:
                if again or self._beaten.get(address) != (self.remoting.connection_of(address), generation):
                    task_group.start_soon(self._beat_one, address, body, generation)

    async def _beat_one(self, address: str, body: bytes, generation: int) -> None:
        try:
            await self.api.heartbeat(address, body)
        except RemotingError as error:
            self._beaten.pop(address, None)
            log.info("heartbeat failed; the next one follows within 30 s", peer=address, error=str(error))
        else:
            self._beaten[address] = self.remoting.connection_of(address), generation

    async def introduce_to(self, topic: str) -> None:
        """Internal: send heartbeats to the brokers that take the topic's messages, or create topics: replies and checks of
        transactions come from them. Raises NoRouteError, RemotingError.
        """
        await self.routes.publish(topic)
        if anyio.current_time() >= self._default_found_at + REFRESH_SECONDS:
            self._default_found_at = anyio.current_time()
            try:
                await self.routes.find(DEFAULT_TOPIC)
            except RemotingError as error:
                log.info("route of the default topic not known", error=str(error))
        await self.introduce()

    # ---- Requests of brokers

    def on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """Internal: hand a broker's request to its handler or consumer; refuse others."""
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
        """Internal: run in the background while the client runs; an error of `do` is logged."""
        if self.task_group is not None:
            self.task_group.start_soon(_guarded, do)


async def _guarded(do: Callable[[], Awaitable[object]]) -> None:
    try:
        await do()
    except Exception:
        log.exception("request of a broker failed")

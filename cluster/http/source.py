"""State of the service beside HTTP: read in the service's event loop, with a time limit.

While the service's loop is stalled, its last answer is returned, with its age.
"""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import trio
from attrs import define, field, frozen

from twinlog.cluster.config.credentials import has_credentials
from twinlog.cluster.remoting.member_status import MemberStatus

if TYPE_CHECKING:
    from twinlog.cluster.broker.broker import Broker
    from twinlog.cluster.namesrv.service import NameServer


T = TypeVar("T")
TICK_SECONDS, STALL_SECONDS = 1.0, 5.0
ASK_SECONDS_MAX = 2.0
SHARE_MAX = 0.05  # Of the service's loop, however often it is asked.


@frozen(kw_only=True)
class NamesrvStatus:
    """A name server that serves."""

    name: str = "namesrv"
    role: str = "namesrv"
    state: str = "serving"


@frozen
class Answer(Generic[T]):
    """An answer of the service and its age; value None: none yet."""

    value: T | None
    age_seconds: float


@define(eq=False)
class _Question(Generic[T]):
    """One kind of question, asked once at a time: concurrent callers share the answer, and so do later ones for as long as asking
    again would take more than SHARE_MAX of the loop.
    """

    read: Callable[[], T]
    clock: Callable[[], float]
    asked: trio.Event | None = None
    value: T | None = None
    at: float = 0.0
    took: float = 0.0  # Seconds of the loop.
    error: Exception | None = None

    async def ask(self, service: trio.lowlevel.TrioToken) -> Answer[T]:
        if self.value is not None and self.error is None and self.clock() - self.at < self.took / SHARE_MAX:
            return self._last()
        if self.asked is None:
            self.asked = asked = trio.Event()
            here = trio.lowlevel.current_trio_token()
            try:
                service.run_sync_soon(self._answer, here, asked)
            except trio.RunFinishedError:
                self.asked = None
                return self._last()
        asked = self.asked
        with trio.move_on_after(ASK_SECONDS_MAX):
            await asked.wait()
            if self.error is not None:
                raise self.error
        return self._last()

    def _last(self) -> Answer[T]:
        return Answer(self.value, self.clock() - self.at if self.value is not None else 0.0)

    def _answer(self, asker: trio.lowlevel.TrioToken, asked: trio.Event) -> None:
        """In the service's loop, where an exception would end the service."""
        began = self.clock()
        try:
            self.value, self.at, self.error = self.read(), self.clock(), None
            self.took = self.at - began
        except Exception as error:
            self.error = error
        with contextlib.suppress(trio.RunFinishedError):
            asker.run_sync_soon(self._hear, asked)

    def _hear(self, asked: trio.Event) -> None:
        self.asked = None
        asked.set()


@define(eq=False)
class Source:
    """A service as HTTP sees it. Made in the service's loop.

    `read_node` gives the service's status, `read_snapshot` what its metrics are made of; both run in
    the service's loop and must not block. `namesrv`: the name servers' addresses as they are now.
    """

    kind: Literal["broker", "namesrv"]
    read_node: Callable[[], MemberStatus | NamesrvStatus]
    read_snapshot: Callable[[], Any]
    namesrv: Callable[[], tuple[str, ...]]
    secret_file: Path | None = None  # Of the group secret, for role changes.
    guards_bodies: bool = False  # Who asks the service itself needs credentials: messages are not for everybody.
    clock: Callable[[], float] = time.monotonic
    ready: trio.Event = field(factory=trio.Event, init=False)  # The service has begun to serve.
    is_stopping: bool = field(default=False, init=False)
    port: int = field(default=0, init=False)
    _ticked: float = field(init=False)
    _token: trio.lowlevel.TrioToken = field(factory=trio.lowlevel.current_trio_token, init=False)
    _node: "_Question[MemberStatus | NamesrvStatus]" = field(init=False)
    _snapshot: "_Question[Any]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ticked = self.clock()
        self._node = _Question(self.read_node, self.clock)
        self._snapshot = _Question(self.read_snapshot, self.clock)

    # In the service's loop

    def serves(self, port: int = 0) -> None:
        """The service is ready, a name server at this port."""
        self.port = port
        self.ready.set()

    async def tick(self) -> None:
        """Show that the loop runs, until cancelled."""
        while True:
            self._ticked = self.clock()
            await trio.sleep(TICK_SECONDS)

    # In the HTTP thread

    @property
    def seconds_since_tick(self) -> float:
        return self.clock() - self._ticked

    @property
    def stalled_seconds(self) -> float:
        """Seconds since the loop stalled; 0 while it runs."""
        late = self.seconds_since_tick - TICK_SECONDS
        return late if late > TICK_SECONDS else 0.0

    @property
    def is_alive(self) -> bool:
        return self.seconds_since_tick <= STALL_SECONDS

    async def node(self) -> Answer[MemberStatus | NamesrvStatus]:
        """The service's state, or the last one known."""
        return await self._node.ask(self._token)

    async def snapshot(self) -> Answer[Any]:
        """The snapshot for metrics, or the last one known."""
        return await self._snapshot.ask(self._token)


LOOPBACK = "127.0.0.1"


def source_of_broker(broker: "Broker") -> Source:
    """Made in the broker's loop."""

    return Source(
        kind="broker",
        read_node=broker.status.member,
        read_snapshot=partial(_broker_snapshot, broker),
        namesrv=lambda: broker.config.name_servers,
        secret_file=broker.secrets.path,
        guards_bodies=broker.acl is not None or has_credentials(),
    )


def source_of_namesrv(namesrv: "NameServer") -> Source:
    """Made in the name server's loop."""

    source = Source(
        kind="namesrv",
        read_node=NamesrvStatus,
        read_snapshot=partial(_namesrv_snapshot, namesrv),
        namesrv=lambda: (f"{host}:{source.port}",),
        guards_bodies=has_credentials(),
    )
    bound = namesrv.server_config.bind_address
    host = LOOPBACK if bound in ("", "0.0.0.0", "::") else bound
    return source


def _broker_snapshot(broker: "Broker") -> Any:
    from twinlog.cluster.metrics import broker_snapshot  # At the first scrape: no start waits for it.

    return broker_snapshot(broker)


def _namesrv_snapshot(namesrv: "NameServer") -> Any:
    from twinlog.cluster.metrics import namesrv_snapshot

    return namesrv_snapshot(namesrv)

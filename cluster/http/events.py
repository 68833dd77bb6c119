"""/events: changes as server-sent events. Members are asked only while somebody listens; all listeners share one answer.

    cluster     /v1/cluster whenever it has changed, at most once a second; to a new listener at once
    history     /v1/history of a group whose newest epoch has changed
    election    a member suspects its master, or hears it again; it has begun, won or given up an election, and why
    operation   progress of a role change that was started over HTTP; to a new listener those that run

A listener that is too slow is disconnected; event sources reconnect, and receive the whole again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
import trio
from attrs import define, field
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.admin.documents import document, dumps
from twinlog.cluster.admin.roles import RoleError
from twinlog.cluster.http.admin import OpenAdmin
from twinlog.cluster.http.server.app import Endpoint
from twinlog.cluster.http.server.responses import EventStream, HttpError, Write
from twinlog.cluster.observe.elections import GroupFailover
from twinlog.cluster.observe.failover import news
from twinlog.cluster.observe.members import MemberList
from twinlog.cluster.remoting.errors import RemotingError

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
BACKLOG_MAX = 64  # Events that a listener may leave unread.


@define(eq=False)
class Feed:
    """The events of one process. `running`: operations for a new listener. run() has to run."""

    open_admin: OpenAdmin
    running: Callable[[], list[dict[str, Any]]] = list
    listeners_max: int = 64
    _listeners: set[trio.MemorySendChannel[bytes]] = field(factory=set, init=False)
    _somebody: trio.Event = field(factory=trio.Event, init=False)
    _cluster: bytes = field(default=b"", init=False)  # The last one that was sent; b"": it may be old.
    _epochs: dict[str, int] = field(factory=dict, init=False)
    _failovers: tuple[GroupFailover, ...] = field(default=(), init=False)
    _number: int = field(default=0, init=False)
    _last_error: str = field(default="", init=False)  # The last error that was logged.

    async def run(self) -> None:
        """Ask for the cluster's state while somebody listens."""
        while True:
            self._somebody = trio.Event()
            if not self._listeners:
                self._cluster, self._failovers = b"", ()
                await self._somebody.wait()
            started = trio.current_time()
            try:
                await self._ask()
            except HttpError as error:
                self._publish_cluster(MemberList((), (error.what,)))
            except Exception as error:  # A member may register and answer anything: that must not end HTTP here.
                self._publish_cluster(MemberList((), ("the status of a member cannot be read",)))
                if self._last_error != (text := repr(error)):
                    self._last_error = text
                    log.exception("status of a member cannot be read")
            await trio.sleep_until(started + LOOK_SECONDS)

    async def _ask(self) -> None:
        async with self.open_admin() as admin:
            try:
                found = await admin.list_members()
            except RemotingError as error:
                found = MemberList((), (f"no name server answers: {error}",))
            self._publish_cluster(found)
            for each in news(self._failovers, found.failovers):
                self.publish("election", dumps(document(each)))
            self._failovers = found.failovers or self._failovers
            for group in self._groups_with_news(found):
                with trio.move_on_after(LOOK_SECONDS * 3):
                    await self._publish_history(admin, group)

    def _publish_cluster(self, found: MemberList) -> None:
        data = dumps(document(found))
        if data != self._cluster:
            self._cluster = data
            self.publish("cluster", data)

    def _groups_with_news(self, found: MemberList) -> list[str]:
        epochs: dict[str, int] = {}
        for member in found.members:
            if member.epoch is not None:
                epochs[member.group] = max(member.epoch, epochs.get(member.group, 0))
        news = [group for group, epoch in epochs.items() if self._epochs.get(group, epoch) != epoch]
        self._epochs.update(epochs)
        return news

    async def _publish_history(self, admin: Any, group: str) -> None:
        try:
            self.publish("history", dumps(document(await admin.roles.history(group))))
        except (RemotingError, RoleError) as error:
            log.info("no history to send", group=group, why=str(error))

    def publish(self, event: str, data: bytes) -> None:
        """Send one event to all listeners."""
        self._number += 1
        text = b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, event.encode(), data)
        for listener in list(self._listeners):
            self._send(listener, text)

    def _send(self, listener: trio.MemorySendChannel[bytes], text: bytes) -> None:
        try:
            listener.send_nowait(text)
        except trio.WouldBlock:
            self._listeners.discard(listener)
            listener.close()
        except trio.BrokenResourceError:
            self._listeners.discard(listener)

    def check_room(self) -> None:
        """Raises HttpError if no more listeners are allowed."""
        if len(self._listeners) >= self.listeners_max:
            raise HttpError(
                status=503,
                what="There are too many listeners.",
                why=f"{self.listeners_max} are allowed by httpMaxListeners.",
                next_step="Read /v1/cluster from time to time, or listen at another member.",
                headers={"retry-after": "10"},
            )

    @contextmanager
    def listening(self) -> Iterator[trio.MemoryReceiveChannel[bytes]]:
        """A channel of events, for as long as the block lasts."""
        send, receive = trio.open_memory_channel[bytes](BACKLOG_MAX)
        send.send_nowait(EventStream.RETRY)
        if self._cluster:
            send.send_nowait(b"event: cluster\ndata: %s\n\n" % self._cluster)
        for operation in self.running():
            send.send_nowait(b"event: operation\ndata: %s\n\n" % dumps(operation))
        self._listeners.add(send)
        self._somebody.set()
        try:
            yield receive
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()


def events_route(feed: Feed) -> Endpoint:
    """GET /events."""

    async def write_events(write: Write) -> None:
        with feed.listening() as channel:
            while True:
                text = EventStream.HEARTBEAT
                with trio.move_on_after(EventStream.HEARTBEAT_SECONDS):
                    try:
                        text = await channel.receive()
                    except trio.EndOfChannel:
                        return
                await write(text)

    async def events(_request: Request) -> Response:
        """Changes of the cluster, as server-sent events: `cluster`, `history`, `election` and `operation`."""
        feed.check_room()
        return EventStream(write_events)

    return Endpoint("/events", events)

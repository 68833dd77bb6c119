"""The client: each operation of protocol.py, over the gateway."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import trio
from attrs import define, field

from twinlog.cluster.etcd import gateway
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.errors import EtcdError, LeaseNotFound
from twinlog.cluster.etcd.gateway import Call, Json
from twinlog.cluster.etcd.protocol import (
    Again,
    Event,
    Header,
    Health,
    KeyValue,
    KeyValues,
    Lease,
    NotSwapped,
    Put,
    Status,
    Store,
    Swapped,
)
from twinlog.cluster.etcd.transport import Transport, lines_of

T = TypeVar("T")
WATCH_SILENCE_S = 10.0  # A stopped member says nothing either: so long a silence ends a watch, and a get follows.


@define(eq=False)
class Etcd:
    """A client of one cluster of etcd. `async with Etcd(config) as etcd`, or open() and aclose(). Satisfies protocol.Store."""

    config: EtcdConfig
    _transport: Transport = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._transport = Transport(self.config)

    async def open(self) -> None:
        """Read certificates; connections come with the first request. Raises Refused for files that cannot be used."""
        await self._transport.__aenter__()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.__aexit__()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def header(self) -> Header | None:
        """The header of the newest answer; None before the first."""
        return self._transport.header

    @property
    def cluster_id(self) -> int:
        """The id of the cluster that answered last; 0 before the first answer."""
        return self.header.cluster_id if self.header else 0

    async def get(self, key: str) -> KeyValue | None:
        """Read a key, linearizably. Raises Unavailable or Refused. Source: RangeRequest."""
        found = await self._ask(gateway.get(self._full(key)), self._key_values)
        return found.items[0] if found.items else None

    async def get_prefix(self, prefix: str) -> KeyValues:
        """Read all keys that start so, linearizably. Raises Unavailable or Refused. Source: RangeRequest."""
        return await self._ask(gateway.get_prefix(self._full(prefix)), self._key_values)

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Write a key; return the revision. Raises EtcdError, LeaseNotFound among them. Source: PutRequest."""
        call = gateway.put(self._full(key), value, lease)
        return await self._ask(call, lambda reply: gateway.header_of(reply).revision)

    async def swap(
        self, key: str, expected_mod_revision: int, value: bytes, *, lease: int = 0, also: Sequence[Put] = ()
    ) -> Swapped | NotSwapped:
        """Write a key, and `also`, if its mod_revision is the expected one; ABSENT: if it is not there.

        Raises EtcdError: none of its kinds means that somebody else was faster. After Unknown, read, and see Unknown's own
        words: nothing has settled it before a newer mod_revision, or another swap with an answer. Source: TxnRequest.
        """
        puts = [Put(self._full(key), value, lease), *(Put(self._full(p.key), p.value, p.lease) for p in also)]
        call = gateway.swap(self._full(key), expected_mod_revision, puts)
        return await self._ask(call, lambda reply: gateway.swapped(reply, self.config.prefix))

    async def delete(self, key: str) -> bool:
        """Delete a key; say whether it was there. Raises EtcdError. Source: DeleteRangeRequest."""
        return await self._ask(gateway.delete(self._full(key)), lambda reply: int(reply.get("deleted", 0)) > 0)

    async def grant(self, ttl: int) -> Lease:
        """Make a lease of so many seconds. Raises EtcdError. Source: LeaseGrantRequest."""
        return await self._ask(gateway.grant(ttl), gateway.lease_of)

    async def keep_alive(self, lease: int) -> Lease:
        """Let a lease live its whole time again. Raises LeaseNotFound, Unavailable or Refused. Source: LeaseKeepAliveRequest."""
        call = gateway.keep_alive(lease)
        found = await self._ask(call, gateway.lease_of)
        if found.ttl <= 0:
            raise LeaseNotFound(f"cannot {call.what}: it has expired or was revoked", cause=gateway.LEASE)
        return found

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raises EtcdError. Source: LeaseRevokeRequest."""
        try:
            await self._transport.ask(gateway.revoke(lease))
        except LeaseNotFound:
            return

    async def status(self, endpoint: str) -> Status:
        """One member's own words; it needs no leader for them. Raises Unavailable or Refused. Source: StatusRequest."""
        began = trio.current_time()
        reply = await self._transport.ask_at(endpoint, gateway.STATUS)
        latency_ms = (trio.current_time() - began) * 1000
        return self._read(
            gateway.STATUS, endpoint, lambda of: gateway.status_of(of, endpoint, round(latency_ms, 3)), reply
        )

    async def health(self) -> tuple[Health, ...]:
        """All endpoints, asked at the same time, in the configuration's order. Raises nothing."""
        found: dict[str, Health] = {}

        async def ask(endpoint: str) -> None:
            try:
                found[endpoint] = Health(endpoint=endpoint, status=await self.status(endpoint), error=None)
            except EtcdError as error:
                found[endpoint] = Health(endpoint=endpoint, status=None, error=error)

        async with trio.open_nursery() as nursery:
            for endpoint in self.config.endpoints:
                nursery.start_soon(ask, endpoint)
        return tuple(found[endpoint] for endpoint in self.config.endpoints)

    def watch(
        self, key: str, *, start_revision: int, silence_s: float = WATCH_SILENCE_S
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Events of a key from a revision on: `async with etcd.watch(...) as events: async for event in events`.

        The last one is Again, whatever ended it: compaction, a lost connection, a stop of etcd, missing rights, so long a
        silence. Raises nothing. Source: WatchCreateRequest.
        """
        return self._watch(gateway.watch(self._full(key), start_revision), silence_s)

    @asynccontextmanager
    async def _watch(self, call: Call, silence_s: float) -> AsyncIterator[AsyncIterator[Event]]:
        events = self._events(call, silence_s)
        try:
            yield events
        finally:
            await events.aclose()

    async def _events(self, call: Call, silence_s: float) -> AsyncGenerator[Event, None]:
        """No cancel scope is open while it yields, as trio demands of generators."""
        try:
            async with self._transport.stream(call, silence_s + 1) as response, lines_of(response) as lines:
                while True:
                    line = None
                    with trio.move_on_after(silence_s):
                        line = await anext(lines, b"")
                    if not line:
                        yield Again("nothing new" if line is None else "etcd ended the stream")
                        return
                    reply = gateway.watch_reply(line, self.config.prefix)
                    for event in reply.events:
                        yield event
                    if reply.ended:
                        yield Again(reply.ended)
                        return
        except (EtcdError, gateway.OddReplyError) as error:
            yield Again(str(error))

    async def _ask(self, call: Call, read: Callable[[Json], T]) -> T:
        return self._read(call, "", read, await self._transport.ask(call))

    def _read(self, call: Call, endpoint: str, read: Callable[[Json], T], reply: Json) -> T:
        """Make a value of a reply. One that lacks what it has to have says nothing about what happened."""
        try:
            return read(reply)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise gateway.odd(repr(reply).encode()).error(call, endpoint) from error

    def _key_values(self, reply: Json) -> KeyValues:
        return gateway.key_values(reply, self.config.prefix)

    def _full(self, key: str) -> str:
        return self.config.prefix + key


if TYPE_CHECKING:
    _is_a_store: Callable[[EtcdConfig], Store] = Etcd

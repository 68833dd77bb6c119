"""A broker group in memory, as far as pulls and offsets go: members that lag, vanish, refuse, and lose messages."""

from typing import Any

import trio
from attrs import define, evolve, field

from twinlog.cluster.client.api import PullResponse, PullStatus, QueueOffsets
from twinlog.cluster.pipeline.topics.connection import Connection
from twinlog.cluster.pipeline.topics.options import Chosen, Place, SourceOptions
from twinlog.cluster.remoting.errors import RemotingConnectError, RequestError
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses, MessageQueue, QueueData, TopicRoute
from twinlog.store.record.message import Message, body_crc, encode_message

QUEUE = MessageQueue("T", "b", 0)
MASTER, SLAVE = "master:1", "slave:1"


def record(offset: int, body: bytes = b"body", **more: Any) -> bytes:
    """A record as the log has it."""
    message = Message("T", 0, body, b"", queue_offset=offset, phy_offset=1000 * offset, **more)
    return encode_message(evolve(message, body_crc=body_crc(message.body)))


@define(eq=False)
class Member:
    """Has messages `first` to `end`; `missing`: none of these are given, `filtered`: nor these with a filter.

    `errors`: raised first, the last one again and again.
    """

    first: int = 0
    end: int = 0
    missing: set[int] = field(factory=set)
    filtered: set[int] = field(factory=set)
    errors: list[Exception] = field(factory=list)
    suggests: int = 0
    asked: list[int] = field(factory=list)
    bytes_of: Any = staticmethod(record)


@define(eq=False)
class FakeApi:
    """Answers as the members do."""

    members: dict[str, Member]
    addresses: dict[int, str] = field(factory=lambda: {0: MASTER})
    is_twinlog: bool = True
    confirmed: int | None = None
    most: int = 32
    namesrv: tuple[str, ...] = ("ns:1",)
    committed: dict[tuple[str, MessageQueue, str], int] = field(factory=dict)
    consumers: list[str] = field(factory=list)  # Client ids of a group's members.
    plain_pulls: int = 0  # Those without a filter.
    beats: list[tuple[str, bytes]] = field(factory=list)
    refusal: RequestError | None = None  # Of heartbeats.

    async def _member(self, address: str) -> Member:
        await trio.lowlevel.checkpoint()
        member = self.members.get(address)
        if member is None:
            raise RemotingConnectError(address, "Connection refused")
        if member.errors:
            raise member.errors.pop(0) if len(member.errors) > 1 else member.errors[0]
        return member

    async def pull(
        self, address: str, queue: MessageQueue, offset: int, *, count_max: int = 32, expression: str = "*", **_: Any
    ) -> PullResponse:
        member = await self._member(address)
        member.asked.append(offset)
        missing = member.missing if expression == "*" else member.missing | member.filtered
        self.plain_pulls += expression == "*"
        first, end, low = member.first, member.end, offset
        if offset < first or offset > end:
            return PullResponse(PullStatus.OFFSET_ILLEGAL, first if offset < first else end, first, end, 0, b"")
        if offset == end:
            return PullResponse(PullStatus.NO_NEW_MSG, offset, first, end, 0, b"")
        found = []
        while low < end and len(found) < min(count_max, self.most):
            if low not in missing:
                found.append(member.bytes_of(low))
            low += 1
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MSG
        return PullResponse(status, low, first, end, member.suggests, b"".join(found))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        return (await self._member(address)).first

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        return (await self._member(address)).end

    async def offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        return (await self._member(address)).first

    async def commit_offset(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        await self._member(address)
        self.committed[address, queue, group] = offset

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        await self._member(address)
        return self.consumers

    async def heartbeat(self, address: str, body: bytes) -> None:
        await self._member(address)
        self.beats.append((address, body))
        if self.refusal is not None:
            raise self.refusal

    async def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        member = await self._member(address)
        return {QUEUE: QueueOffsets(member.first, member.end, 0)}

    async def member_status(self, address: str) -> MemberStatus | None:
        member = await self._member(address)
        if not self.is_twinlog:
            return None
        end = 1000 * member.end
        return MemberStatus(
            confirmed_offset=end if self.confirmed is None else self.confirmed, max_offset=end, visibility="all"
        )

    async def topic_route(self, topic: str) -> TopicRoute | None:
        await trio.lowlevel.checkpoint()
        if topic != "T":
            return None
        return TopicRoute(topic, {"b": self.group}, (QueueData("b", 1, 1, 6),))

    async def topics(self) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return ("T",)

    @property
    def group(self) -> BrokerAddresses:
        """The members that are registered."""
        return BrokerAddresses("C", "b", dict(self.addresses))


def options(**more: Any) -> SourceOptions:
    """Of a query that reads T."""
    start = Place("startingOffsets", -2)
    given = {"connection": Connection(name_servers=("ns:1",)), "chosen": Chosen(topics=("T",)), "start": start}
    return SourceOptions(**{**given, **more})

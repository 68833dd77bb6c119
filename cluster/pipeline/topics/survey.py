"""Asks the cluster: which queues there are, where they begin and end, and which message was stored when.

All requests go to masters, or to a slave where a broker has no master now. Of a twinlog broker a queue ends at what is confirmed,
which no role change cuts; RocketMQ does not say what is confirmed, so there a queue ends at its last message.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import trio
from attrs import define, frozen

from twinlog.cluster.client.api import ClientApi, PullStatus
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.committing import CLIENT_ID
from twinlog.cluster.pipeline.topics.offsets import (
    EARLIEST,
    LATEST,
    Ends,
    Mark,
    Offsets,
    out_of_range,
    text_of,
    unknown_queues,
    unlike,
)
from twinlog.cluster.pipeline.topics.options import Chosen, Place, SourceOptions
from twinlog.cluster.pipeline.topics.refusals import is_final, refused
from twinlog.cluster.remoting.errors import RemotingError, RemotingProtocolError, RequestError
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.names import TAG
from twinlog.cluster.remoting.route import MASTER_ID, BrokerAddresses, MessageQueue, TopicRoute, by_broker
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message

_CONFIRMED = "confirmed"  # Of option visibility: the broker itself shows no more.
_SETTLE_TRIES, _SETTLE_SECONDS = 5, 0.01
_TRIES, _PAUSE_SECONDS = 3, 0.5

T = TypeVar("T")


@frozen
class Survey:
    """State of the cluster now. `away`: brokers without an answer, and why; `queues` has none of theirs."""

    brokers: Mapping[str, BrokerAddresses]
    queues: Mapping[MessageQueue, Ends]
    all_queues: frozenset[MessageQueue]
    away: Mapping[str, str]

    @property
    def clusters(self) -> dict[str, str]:
        """The cluster of each broker."""
        return {name: broker.cluster for name, broker in self.brokers.items()}

    @property
    def ends(self) -> Offsets:
        """Ends of the queues."""
        return {queue: ends.end for queue, ends in self.queues.items()}

    def require(self, what: str) -> None:
        """Raises ReadRefusedError when a broker is away."""
        for name, why in sorted(self.away.items()):
            raise ReadRefusedError(
                f"the broker {name} does not answer, and {what} needs its queues: {why}. Start it, or let a slave become master "
                "(`twinlog failover`); to read other brokers only, name their queues by option assign."
            )


@frozen
class Found:
    """A message: its number, where its record lies in the log, and when it was stored."""

    queue_offset: int
    phy_offset: int
    phy_end: int
    stored_ms: int


@define(eq=False)
class Surveyor:
    """Asks one cluster, as long as its api is open."""

    api: ClientApi
    options: SourceOptions

    # ---- Queues

    async def survey(self) -> Survey:
        """All queues of the query. Raises ReadRefusedError for what name servers refuse, and RemotingError without any."""
        routes = await self._routes(self.options.chosen)
        brokers: dict[str, BrokerAddresses] = {}
        for route in routes:
            brokers |= {name: broker for name, broker in route.brokers.items() if broker.addresses}
        takes = self.options.chosen.takes
        wanted = [queue for route in routes for queue in route.read_queues() if takes(queue)]
        groups = {name: queues for name, queues in by_broker(wanted).items() if name in brokers}
        queues: dict[MessageQueue, Ends] = {}
        away: dict[str, str] = {}
        await in_parallel(partial(self._ask_broker, brokers[name], mine, queues, away) for name, mine in groups.items())
        return Survey(brokers, queues, frozenset(wanted), away)

    async def _routes(self, chosen: Chosen) -> list[TopicRoute]:
        topics = chosen.named if chosen.pattern is None else chosen.matching(await self._retried(self.api.topics))
        found = await in_parallel(partial(self._retried, partial(self.api.topic_route, topic)) for topic in topics)
        return [route for route in found if route is not None]

    async def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        for tried in range(1, _TRIES + 1):
            try:
                return await ask()
            except RequestError as error:
                raise refused(f"the name servers {';'.join(self.api.namesrv)}", error) from error
            except RemotingError:
                if tried == _TRIES:
                    raise
            await trio.sleep(_PAUSE_SECONDS)
        raise AssertionError

    async def _ask_broker(
        self,
        broker: BrokerAddresses,
        wanted: list[MessageQueue],
        queues: dict[MessageQueue, Ends],
        away: dict[str, str],
    ) -> None:
        """Ends of these queues. Raises ReadRefusedError when the broker refuses, as for missing rights."""
        address = broker.find(MASTER_ID)
        assert address is not None, "a route has no broker without an address"
        try:
            found = await self._ends(address, wanted, by_master=address == broker.master)
        except RequestError as error:
            if is_final(error):
                raise refused(f"the broker {broker.broker_name} at {address}, asked for its queues", error) from error
            away[broker.broker_name] = f"{address}: {error}"
        except RemotingError as error:
            away[broker.broker_name] = str(error)
        else:
            queues.update(found)

    async def _ends(self, address: str, wanted: list[MessageQueue], *, by_master: bool) -> dict[MessageQueue, Ends]:
        topics = sorted({queue.topic for queue in wanted})
        tables = await in_parallel(partial(self.api.topic_stats, address, topic) for topic in topics)
        stats = {queue: at for table in tables for queue, at in table.items()}
        found = {}
        for queue in wanted:
            if at := stats.get(queue):
                first, end = at.min_offset, at.max_offset
            else:  # It is not written any more.
                first, end = await self.api.min_offset(address, queue), await self.api.max_offset(address, queue)
            found[queue] = Ends(max(first, 0), max(end, first, 0), by_master)
        confirmed = await self._confirmed(address)
        if confirmed is None:
            return found
        return {queue: await self._confirmed_ends(address, queue, ends, confirmed) for queue, ends in found.items()}

    async def _confirmed(self, address: str) -> int | None:
        """Offset up to which the log is confirmed, if queues may show more than that; None: they do not, or nobody knows.

        The ends of the queues are known before: once the log is confirmed up to its end of now, so are they.
        """
        status = await self._status(address)
        if status is None or status.confirmed_offset is None or status.visibility == _CONFIRMED:
            return None
        end = status.max_offset or 0
        for _ in range(_SETTLE_TRIES):
            if status is None or status.confirmed_offset is None or status.confirmed_offset >= end:
                return None
            await trio.sleep(_SETTLE_SECONDS)
            status = await self._status(address)
        return None if status is None or status.confirmed_offset is None else status.confirmed_offset

    async def _status(self, address: str) -> MemberStatus | None:
        try:
            return await self.api.member_status(address)
        except RequestError:  # RocketMQ with access control may refuse what it does not know.
            return None

    async def _confirmed_ends(self, address: str, queue: MessageQueue, ends: Ends, confirmed: int) -> Ends:
        async def is_confirmed(offset: int) -> bool:
            found = await self._message(address, queue, offset)
            return found is not None and found.phy_end <= confirmed

        end = await boundary(ends.first, ends.end, ends.end, is_confirmed)
        return Ends(ends.first, end, ends.by_master, ends.end)

    # ---- Places

    async def places(self, survey: Survey, place: Place) -> Offsets:
        """The offset of each queue for a place of the options. Raises ReadRefusedError, RemotingError."""
        problem = unknown_queues(place.option, place.named, survey.all_queues)
        if problem is not None:
            raise problem
        return dict(
            await in_parallel(partial(self._place, survey, place, queue, ends) for queue, ends in survey.queues.items())
        )

    async def _place(self, survey: Survey, place: Place, queue: MessageQueue, ends: Ends) -> tuple[MessageQueue, int]:
        wanted = place.named.get(queue, place.otherwise)
        if wanted in (EARLIEST, LATEST):
            return queue, ends.first if wanted == EARLIEST else ends.end
        if place.is_time:
            return queue, await self._offset_at(survey, queue, ends, wanted)
        if not ends.first <= wanted <= ends.end:
            if self.options.fail_on_data_loss:
                raise out_of_range(place.option, queue, wanted, ends)
            wanted = min(max(wanted, ends.first), ends.end)
        return queue, wanted

    async def _offset_at(self, survey: Survey, queue: MessageQueue, ends: Ends, time_ms: int) -> int:
        """The first message that was stored at or after a time. Brokers answer with the nearest, or with that one."""
        address = self.address(survey, queue)

        async def is_before(offset: int) -> bool:
            found = await self._message(address, queue, offset)
            return found is not None and found.stored_ms < time_ms

        near = await self.api.offset_at(address, queue, time_ms) if ends.first < ends.end else ends.end
        return await boundary(ends.first, ends.end, near, is_before)

    def address(self, survey: Survey, queue: MessageQueue) -> str:
        """The member that is asked about a queue."""
        address = survey.brokers[queue.broker_name].find(MASTER_ID)
        assert address is not None
        return address

    async def age_ms(self, survey: Survey, queue: MessageQueue, offset: int) -> int:
        """Milliseconds since the first message from an offset on was stored; 0 without one. Raises RemotingError."""
        found = await self._message(self.address(survey, queue), queue, offset)
        return 0 if found is None else max(0, int(time.time() * 1000) - found.stored_ms)

    async def _message(self, address: str, queue: MessageQueue, offset: int) -> Found | None:
        """The first message from an offset on."""
        answer = await self.api.pull(address, queue, offset, group=self.options.reading_group, count_max=1)
        if answer.status is not PullStatus.FOUND or not len(answer.records):
            return None
        try:
            record = decode_message(answer.records, 0, check_crc=False)
        except StoreError as error:
            raise RemotingProtocolError(f"{address}: a pull was answered with no record: {error}") from error
        end = record.phy_offset + record.size
        return Found(record.queue_offset, record.phy_offset, end, record.store_timestamp)

    # ---- Marks

    async def mark(self, survey: Survey, queue: MessageQueue, end: int) -> Mark | None:
        """The message before the end of what is read of a queue; None: there is none."""
        found = await self._message(self.address(survey, queue), queue, end - 1)
        if found is None or found.queue_offset != end - 1:
            return None
        return Mark(queue.topic, queue.queue_id, found.queue_offset, found.phy_offset, found.stored_ms)

    async def unlike(self, survey: Survey, marks: Mapping[str, Mark]) -> str | None:
        """Reason why a checkpoint with these marks is not of this cluster; None: nothing speaks against it."""
        for broker, mark in marks.items():
            queue = MessageQueue(mark.topic, broker, mark.queue_id)
            ends = survey.queues.get(queue)
            if ends is None or not ends.first <= mark.queue_offset < ends.end:
                continue
            now = await self.mark(survey, queue, mark.queue_offset + 1)
            if now is not None and now != mark:
                return unlike(broker, mark)
        return None

    # ---- Rights

    async def try_out(self, survey: Survey) -> None:
        """Pull once from each topic and broker, with the filter: so what is refused is told before tasks begin."""
        one = {(queue.topic, queue.broker_name): queue for queue in survey.queues}
        await in_parallel(partial(self._try_out, survey, queue) for queue in one.values())

    async def _try_out(self, survey: Survey, queue: MessageQueue) -> None:
        address, wanted = self.address(survey, queue), self.options.subscription(queue.topic)
        try:
            if wanted.kind != TAG:  # RocketMQ gives pulls with an expression that it cannot parse all messages.
                await self.api.check_filter(address, CLIENT_ID, self.options.reading_group, wanted)
            await self.api.pull(
                address,
                queue,
                survey.queues[queue].first,
                group=self.options.reading_group,
                expression=wanted.expression,
                kind=wanted.kind,
                count_max=1,
            )
        except RequestError as error:
            raise refused(f"reading {text_of(queue)} from {address}", error) from error


async def boundary(low: int, high: int, near: int, is_below: Callable[[int], Awaitable[bool]]) -> int:
    """The first number from `low` up to `high` for which `is_below` is false; `high` if there is none.

    It is true up to some number and false from there on. The search begins at `near`, and asks few questions if that is close.
    """
    near, step = min(max(near, low), high), 1
    if near < high and await is_below(near):
        low = near + 1
        while low < high and await is_below(min(near + step, high - 1)):
            low = min(near + step, high - 1) + 1
            step *= 2
        high = min(near + step, high) if low < high else high
    else:
        high = near
        while low < high and not await is_below(max(high - step, low)):
            high = max(high - step, low)
            step *= 2
        low = max(high - step, low) + 1 if low < high else low
    while low < high:
        middle = (low + high) // 2
        if await is_below(middle):
            low = middle + 1
        else:
            high = middle
    return low

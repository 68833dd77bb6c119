"""Changes of consumer groups' offsets: reset, seek and clone, each planned first.

    prepare_*() -> OffsetPlan: for each queue before and after -> apply(plan)

For connected consumers the broker changes the offsets (request 222) and notifies them; for a group without consumers they are
stored (15). A connected consumer would overwrite stored offsets with its own. Only masters are asked: a slave's table is replaced
by its master's.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from attrs import evolve, frozen

from twinlog.cluster.admin.errors import Step, carry_out
from twinlog.cluster.admin.groups import GroupOnlineError
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe import consumption
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.consumption import QueueLag
from twinlog.cluster.observe.gather import Target, masters
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.cluster.user_errors import REFUSED, UserError

END, BEGINNING = -1, 0  # Timestamps of request 222.


@frozen
class First:
    """The oldest message."""


@frozen
class Last:
    """The end: only new messages."""


@frozen
class At:
    """The message stored nearest to a time; ms since 1970."""

    milliseconds: int


@frozen
class Offset:
    """An offset of a queue."""

    number: int


@frozen
class Shift:
    """So many messages forward, or back where negative."""

    messages: int


Where = First | Last | At | Offset | Shift


class NothingToMoveError(UserError):
    """The group has no matching queue."""

    next_step = "See how far groups are with: twinlog lag"


class NoQueueResetError(UserError):
    """A broker that cannot move one queue of connected consumers."""

    exit_status = REFUSED
    next_step = "Stop its consumers first, or reset it to a time"


@frozen(kw_only=True)
class OffsetMove:
    """A queue with its offset before and after. `again` messages are read a second time."""

    topic: str
    broker: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int
    skipped: int | None
    again: int | None

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker, self.queue_id)


@frozen(kw_only=True)
class OffsetPlan:
    """A change of a group's offsets, made or (`done` false) only planned. `clients` are connected and will be notified."""

    group: str
    source: str | None  # The group whose offsets are taken, of a clone.
    clients: tuple[str, ...]
    moves: tuple[OffsetMove, ...]
    done: bool
    timestamp: int | None  # For request 222: all queues to that time, 0 the beginning, -1 the end.


@frozen
class OffsetAdmin:
    """The operations on offsets."""

    api: ClientApi

    async def prepare_reset(
        self, group: str, topic: str, where: Where, *, broker: str | None = None, queue_id: int | None = None
    ) -> OffsetPlan:
        """Move a group in the queues of a topic, or in one of them.

        Raises NothingToMoveError, NoMasterError, NoQueueResetError, SilentBrokersError.
        """
        views = await consumption.ask_all_brokers(self.api, [group])
        clients = tuple(each.client_id for each in consumption.clients_of(views, group))
        targets = await self._masters_of(topic, broker)
        rows = [row for row in await self._rows(targets, group, topic) if queue_id in (None, row.queue_id)]
        if not rows:
            raise NothingToMoveError(f"the topic {topic} has no such queue on a broker that answers")
        at = {each.broker: each.address for each in targets}
        places = await in_parallel(partial(self._target, at[row.broker], row, where) for row in rows)
        moves = tuple(move_to(row, place) for row, place in zip(rows, places, strict=True))
        whole = broker is None and queue_id is None and isinstance(where, (First, Last, At))
        if clients and not whole:
            await self._need_queue_reset([at[name] for name in {row.broker for row in rows}])
        timestamp = _timestamp(where) if whole else None
        return OffsetPlan(group=group, source=None, clients=clients, moves=moves, done=False, timestamp=timestamp)

    async def _masters_of(self, topic: str, broker: str | None) -> tuple[Target, ...]:
        route = await self.api.topic_route(topic)
        names = tuple(name for name in (route.brokers if route is not None else ()) if broker in (None, name))
        return await masters(self.api, brokers=names) if names else ()

    async def _rows(self, targets: tuple[Target, ...], group: str, topic: str) -> list[QueueLag]:
        """Offsets of the group in each queue of the topic, including queues without a committed one."""
        rows: list[QueueLag] = []
        for target in targets:
            ends = await self.api.topic_stats(target.address, topic)
            offsets = await admin_requests.all_offsets(self.api, target.address)
            view = consumption.BrokerView(target, offsets, {topic: ends}, {}, {})
            rows += consumption.queue_lags([view], group, topic)
        return rows

    async def _target(self, address: str, row: QueueLag, where: Where) -> int:
        match where:
            case First():
                return row.min_offset
            case Last():
                return row.max_offset
            case Offset(number):
                return number
            case Shift(messages):
                return (row.committed_offset if row.committed_offset is not None else row.min_offset) + messages
            case At(milliseconds):
                queue = MessageQueue(row.topic, row.broker, row.queue_id)
                return await self.api.offset_at(address, queue, milliseconds)

    async def _need_queue_reset(self, addresses: list[str]) -> None:
        for address in addresses:
            if await self.api.member_status(address) is not None:
                continue
            version = (await self.api.runtime_info(address)).get("brokerVersionDesc", "")
            if not version.startswith("V5"):
                raise NoQueueResetError(
                    f"consumers are connected, and the broker at {address} moves those in all queues at once, to a time"
                )

    async def prepare_clone(self, source: str, group: str, topics: tuple[str, ...]) -> OffsetPlan:
        """Plan to give a group the offsets of another one.

        Raises GroupOnlineError, NothingToMoveError, NoMasterError, SilentBrokersError.
        """
        views = await consumption.ask_all_brokers(self.api, [source, group])
        if clients := consumption.clients_of(views, group):
            ids = tuple(each.client_id for each in clients)
            raise GroupOnlineError(group, ids, "its consumers are connected, and would write their own place over it")
        moves = []
        for topic in consumption.topics_of(views, source):
            if (topics and topic not in topics) or topic.startswith(("%RETRY%", "%DLQ%")):
                continue
            before = {(row.broker, row.queue_id): row for row in consumption.queue_lags(views, group, topic)}
            for row in consumption.queue_lags(views, source, topic):
                if row.committed_offset is not None:
                    moves.append(move_to(before[row.broker, row.queue_id], row.committed_offset))
        if not moves:
            raise NothingToMoveError(f"the group {source} has said nowhere how far it is")
        await self._masters_for(moves)
        return OffsetPlan(group=group, source=source, clients=(), moves=tuple(moves), done=False, timestamp=None)

    async def apply(self, plan: OffsetPlan) -> OffsetPlan:
        """Carry it out; the result has what was really set. Raises NoMasterError, RemotingError and PartlyDoneError."""
        addresses = await self._masters_for(plan.moves)
        if plan.clients and plan.timestamp is not None:
            return await self._reset_all(plan, addresses, plan.timestamp)
        each_queue = self._reset_queue if plan.clients else self._store
        await carry_out([_step(move, each_queue, plan.group, addresses) for move in plan.moves])
        return evolve(plan, done=True)

    async def _masters_for(self, moves: Iterable[OffsetMove]) -> dict[str, str]:
        """Their addresses by name, as they are now."""
        names = tuple(sorted({move.broker for move in moves}))
        return {each.broker: each.address for each in await masters(self.api, brokers=names)}

    async def _reset_all(self, plan: OffsetPlan, addresses: dict[str, str], timestamp: int) -> OffsetPlan:
        reported: dict[MessageQueue, int] = {}

        async def reset(broker: str, topic: str) -> None:
            moved = await admin_requests.reset_online(self.api, addresses[broker], topic, plan.group, timestamp)
            if moved is not None:
                reported.update(moved)
                return
            for move in plan.moves:  # Its consumers are connected to other brokers only, or have just left.
                if (move.broker, move.topic) == (broker, topic):
                    await self._store(plan.group, move, addresses[broker])

        # RocketMQ 4.9 moves nobody in a topic with a queue of which it knows nothing.
        unknown = [_step(move, self._store, plan.group, addresses) for move in plan.moves if move.before is None]
        places = sorted({(move.broker, move.topic) for move in plan.moves})
        await carry_out([*unknown, *((f"{topic} {broker}", partial(reset, broker, topic)) for broker, topic in places)])
        moves = tuple(evolve(move, after=reported.get(move.queue, move.after)) for move in plan.moves)
        return evolve(plan, done=True, moves=moves)

    async def _store(self, group: str, move: OffsetMove, address: str) -> None:
        await self.api.commit_offset(address, move.queue, group, move.after)

    async def _reset_queue(self, group: str, move: OffsetMove, address: str) -> None:
        moved = await admin_requests.reset_online(
            self.api, address, move.topic, group, BEGINNING, queue_id=move.queue_id, offset=move.after
        )
        if moved is None:
            await self._store(group, move, address)
        elif (reached := moved.get(move.queue)) != move.after:
            raise RemotingError(f"the broker at {address} moved {move.topic} queue {move.queue_id} to {reached}")


def _step(
    move: OffsetMove,
    work: Callable[[str, OffsetMove, str], Awaitable[None]],
    group: str,
    addresses: Mapping[str, str],
) -> Step:
    name = f"{move.topic} {move.broker} queue {move.queue_id}"
    return name, partial(work, group, move, addresses[move.broker])


def _timestamp(where: Where) -> int:
    match where:
        case First():
            return BEGINNING
        case At(milliseconds):
            return milliseconds
        case _:
            return END


def move_to(row: QueueLag, wanted: int) -> OffsetMove:
    """Within what the queue has: further back there is nothing to read any more, further on nothing yet."""
    after = min(max(wanted, row.min_offset), row.max_offset)
    before = row.committed_offset
    return OffsetMove(
        topic=row.topic,
        broker=row.broker,
        queue_id=row.queue_id,
        before=before,
        after=after,
        min_offset=row.min_offset,
        max_offset=row.max_offset,
        skipped=None if before is None else max(0, after - max(before, row.min_offset)),
        again=None if before is None else max(0, before - after),
    )

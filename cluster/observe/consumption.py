"""Lag of consumer groups, for each group, topic and queue, from what brokers report.

    survey(api) -> BrokerView for each broker group -> queue_lags(views, group) -> topic_lag(rows)

Lag in messages is what is left to read, in seconds the age of the oldest message of it. What is not known is None, never 0.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial

import anyio
from attrs import evolve, frozen

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.client.api import ClientApi, PullStatus, QueueOffsets
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.gather import Target, readers
from twinlog.cluster.observe.requests import Consumers
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.cluster.user_errors import REFUSED, UserError
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message

ASKED_AT_ONCE_MAX = 32
BROADCAST = "BROADCASTING"


class SilentBrokersError(UserError):
    """Brokers do not report what has to be known before a change."""

    exit_status = REFUSED
    next_step = "See who is there with: twinlog list"

    def __init__(self, brokers: tuple[str, ...]) -> None:
        many = len(brokers) > 1
        reported = f"{', '.join(brokers)} {'do' if many else 'does'} not report how far groups are and who is connected"
        super().__init__(f"nothing was changed, because {reported}")


@frozen
class BrokerView:
    """Answers of one broker about the groups that were asked about."""

    target: Target
    offsets: Mapping[tuple[str, str], Mapping[int, int]]  # By topic and group, then queue id.
    ends: Mapping[str, Mapping[MessageQueue, QueueOffsets]]  # By topic.
    groups: Mapping[str, SubscriptionGroupConfig]
    consumers: Mapping[str, Consumers]
    is_whole: bool = True  # False: it did not report the ends of some topic.


@frozen(kw_only=True)
class QueueLag:
    """Progress of a group in one queue.

    `state`: level, behind, new (it has committed no offset), lost (messages were deleted before it read them), or ahead (its
    offset is beyond the queue's end: the log was truncated, or the topic created again).
    """

    group: str
    topic: str
    broker: str
    queue_id: int
    committed_offset: int | None
    min_offset: int
    max_offset: int
    lag_messages: int | None
    lag_seconds: float | None
    state: str
    consumer: str | None  # The client that reads it now, where it was asked for and told.


@frozen(kw_only=True)
class TopicLag:
    """Progress of a group in one topic.

    `state`: the worst of its queues, or `no consumer`, `broadcast` (each client keeps its own offsets), `not subscribed`.
    """

    group: str
    topic: str
    queues: int
    clients: int
    lag_messages: int | None
    lag_seconds: float | None
    change_per_second: float | None = None  # Of lag_messages since the last report; None in the first.
    state: str


@frozen
class LagReport:
    """Lag of each requested group and topic; of each queue too if one group was requested."""

    topics: tuple[TopicLag, ...]
    queues: tuple[QueueLag, ...]
    at_ms: int
    silent: tuple[str, ...] = ()  # Broker groups that did not answer everything.


async def survey(
    api: ClientApi, groups: Collection[str] | None = None
) -> tuple[tuple[BrokerView, ...], tuple[str, ...]]:
    """Ask each broker group about these consumer groups (None: all); also return those that do not answer everything."""
    targets = readers(await api.cluster())
    found = await in_parallel(partial(_view, api, each, groups) for each in targets)
    silent = tuple(
        target.broker for target, view in zip(targets, found, strict=True) if view is None or not view.is_whole
    )
    return tuple(view for view in found if view is not None), silent


async def ask_all_brokers(api: ClientApi, groups: Collection[str]) -> tuple[BrokerView, ...]:
    """Ask every broker group about these consumer groups, before they are changed. Raises SilentBrokersError."""
    views, silent = await survey(api, groups)
    if silent:
        raise SilentBrokersError(silent)
    return views


async def ends_of(api: ClientApi, address: str, topic: str) -> Mapping[MessageQueue, QueueOffsets] | None:
    """A topic's queues at one broker; empty where it is gone, which offsets in it outlive; None: no answer."""
    try:
        return await api.topic_stats(address, topic)
    except RequestError as error:
        return {} if error.code == ResponseCode.TOPIC_NOT_EXIST else None
    except RemotingError:
        return None


async def _view(api: ClientApi, at: Target, groups: Collection[str] | None) -> BrokerView | None:
    limiter = anyio.Semaphore(ASKED_AT_ONCE_MAX)

    async def limited_ends_of(topic: str) -> Mapping[MessageQueue, QueueOffsets] | None:
        async with limiter:
            return await ends_of(api, at.address, topic)

    async def consumers_of(group: str) -> Consumers | None:
        async with limiter:
            return await admin_requests.consumers_of(api, at.address, group)

    try:
        configs = await admin_requests.group_configs(api, at.address)
        offsets = await admin_requests.all_offsets(api, at.address)
        wanted = [
            each for each in sorted({*configs, *(group for _, group in offsets)}) if groups is None or each in groups
        ]
        found = await in_parallel(partial(consumers_of, each) for each in wanted)
        consumers = {group: each for group, each in zip(wanted, found, strict=True) if each is not None}
        offsets = {key: each for key, each in offsets.items() if key[1] in wanted}
        topics = sorted(
            {topic for topic, _ in offsets} | {t for each in consumers.values() for t in each.subscriptions}
        )
        ends = await in_parallel(partial(limited_ends_of, each) for each in topics)
    except RemotingError:
        return None
    return BrokerView(
        at,
        offsets,
        {topic: each or {} for topic, each in zip(topics, ends, strict=True)},
        {name: config for name, config in configs.items() if name in wanted},
        consumers,
        is_whole=None not in ends,
    )


def groups_in(views: Iterable[BrokerView]) -> tuple[str, ...]:
    """All groups that a broker knows, by name."""
    return tuple(sorted({name for view in views for name in (*view.groups, *(group for _, group in view.offsets))}))


def topics_of(views: Iterable[BrokerView], group: str) -> tuple[str, ...]:
    """The topics in which a group has offsets, or to which it subscribes now."""
    found = set()
    for view in views:
        found |= {topic for topic, name in view.offsets if name == group}
        if group in view.consumers:
            found |= set(view.consumers[group].subscriptions)
    return tuple(sorted(found))


def clients_of(views: Iterable[BrokerView], group: str) -> tuple[admin_requests.ConnectedClient, ...]:
    """The connected clients of a group; one that is connected to several brokers counts once."""
    found = {
        client.client_id: client
        for view in views
        if group in view.consumers
        for client in view.consumers[group].clients
    }
    return tuple(found[client_id] for client_id in sorted(found))


def queue_lags(views: Iterable[BrokerView], group: str, topic: str) -> tuple[QueueLag, ...]:
    """Each queue of the topic, without seconds and consumers: those cost further requests."""
    rows = []
    for view in views:
        committed = view.offsets.get((topic, group), {})
        for queue, offsets in sorted(view.ends.get(topic, {}).items(), key=lambda each: each[0]):
            rows.append(_queue_lag(group, queue, offsets, committed.get(queue.queue_id)))
    return tuple(rows)


def _queue_lag(group: str, queue: MessageQueue, offsets: QueueOffsets, committed: int | None) -> QueueLag:
    lag: int | None
    if committed is None:
        lag, state = (0, "level") if offsets.max_offset == offsets.min_offset else (None, "new")
    elif committed > offsets.max_offset:
        lag, state = 0, "ahead"
    else:
        lag = offsets.max_offset - max(committed, offsets.min_offset)
        state = "lost" if committed < offsets.min_offset else "behind" if lag else "level"
    return QueueLag(
        group=group,
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        committed_offset=committed,
        min_offset=offsets.min_offset,
        max_offset=offsets.max_offset,
        lag_messages=lag,
        lag_seconds=0.0 if lag == 0 else None,
        state=state,
        consumer=None,
    )


async def with_seconds(api: ClientApi, views: Iterable[BrokerView], rows: tuple[QueueLag, ...]) -> tuple[QueueLag, ...]:
    """Fill in the age of each queue's oldest unread message, by reading it."""
    addresses = {view.target.broker: view.target.address for view in views}
    limiter = anyio.Semaphore(ASKED_AT_ONCE_MAX)

    async def aged(row: QueueLag) -> QueueLag:
        if not row.lag_messages or row.committed_offset is None:
            return row
        queue, start = MessageQueue(row.topic, row.broker, row.queue_id), max(row.committed_offset, row.min_offset)
        try:
            async with limiter:
                pulled = await api.pull(addresses[row.broker], queue, start, count_max=1)
            if pulled.status is not PullStatus.FOUND:
                return row
            stored_ms = decode_message(pulled.records, check_crc=False).store_timestamp
        except (RemotingError, StoreError):
            return row
        return evolve(row, lag_seconds=max(0.0, round(time.time() - stored_ms / 1000, 3)))

    return tuple(await in_parallel(partial(aged, row) for row in rows))


async def with_consumers(
    api: ClientApi, views: Iterable[BrokerView], rows: tuple[QueueLag, ...], group: str
) -> tuple[QueueLag, ...]:
    """Fill in the client that holds each queue, asked of each client through a broker that it is connected to."""
    where = {
        client.client_id: view.target.address
        for view in views
        if group in view.consumers
        for client in view.consumers[group].clients
    }

    async def held(client_id: str, address: str) -> tuple[MessageQueue, ...]:
        try:
            return await admin_requests.queues_held(api, address, group, client_id) or ()
        except RemotingError:
            return ()

    reported = await in_parallel(partial(held, *each) for each in where.items())
    holders = {queue: client_id for client_id, queues in zip(where, reported, strict=True) for queue in queues}
    return tuple(evolve(row, consumer=holders.get(MessageQueue(row.topic, row.broker, row.queue_id))) for row in rows)


_WORST_FIRST = ("lost", "ahead", "behind", "new", "level")


def topic_lag(views: Collection[BrokerView], rows: Collection[QueueLag], group: str, topic: str) -> TopicLag:
    """The queues of one topic in one line."""
    connected = [view.consumers[group] for view in views if group in view.consumers]
    states = {row.state for row in rows}
    state = next((each for each in _WORST_FIRST if each in states), "level")
    if not connected:
        state = "no consumer"
    elif any(each.message_model == BROADCAST for each in connected):
        state = "broadcast"
    elif not any(topic in each.subscriptions for each in connected):
        state = "not subscribed"
    lags = [row.lag_messages for row in rows if row.lag_messages is not None]
    seconds = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    all_aged = all(row.lag_seconds is not None for row in rows if row.lag_messages)
    return TopicLag(
        group=group,
        topic=topic,
        queues=len(rows),
        clients=len(clients_of(views, group)),
        lag_messages=sum(lags) if lags and state != "broadcast" else None,
        lag_seconds=max(seconds) if seconds and state != "broadcast" and all_aged else None,
        state=state,
    )


def with_change(before: LagReport | None, now: LagReport) -> LagReport:
    """Each topic with how fast its lag grows or shrinks since the report before."""
    if before is None or now.at_ms <= before.at_ms:
        return now
    seconds = (now.at_ms - before.at_ms) / 1000
    known = {(row.group, row.topic): row.lag_messages for row in before.topics}

    def changed(row: TopicLag) -> TopicLag:
        old = known.get((row.group, row.topic))
        if old is None or row.lag_messages is None:
            return row
        return evolve(row, change_per_second=round((row.lag_messages - old) / seconds, 3))

    return evolve(now, topics=tuple(changed(row) for row in now.topics))

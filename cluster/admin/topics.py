"""Topics: list, show, create, change and delete them; results are frozen, and pure functions make them.

What is not known is None, never 0. Offsets count messages.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from attrs import evolve, frozen

from twinlog.cluster.admin.errors import Step, carry_out
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.api import ClientApi, QueueOffsets
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.consumption import BrokerView, clients_of, queue_lags
from twinlog.cluster.observe.gather import Target, masters, readers
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue, QueueData, TopicRoute
from twinlog.cluster.user_errors import NOT_FOUND, REFUSED, UserError

# Topics that RocketMQ makes for itself. Source: TopicValidator, MixAll (4.9.8).
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%")

_Ends = Mapping[MessageQueue, QueueOffsets]  # Of a topic at one broker.


class NoTopicError(UserError):
    """No broker has such a topic."""

    http_status = NOT_FOUND
    next_step = "See what there is with: twinlog topic list --all"

    def __init__(self, name: str) -> None:
        super().__init__(f"no broker that is registered now has the topic {name}")
        self.name = name


class TopicExistsError(UserError):
    """A topic of this name exists already."""

    exit_status = REFUSED
    next_step = "Change it with: twinlog topic update {name}"

    def __init__(self, name: str, brokers: tuple[str, ...]) -> None:
        super().__init__(f"the topic {name} exists already, on {', '.join(brokers)}")
        self.name = name


@frozen(kw_only=True)
class TopicSummary:
    """One topic over all broker groups. Offsets count messages, summed over queues; None: no answer."""

    name: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    min_offset_sum: int | None
    max_offset_sum: int | None
    messages: int | None
    last_update_ms: int | None  # When the last message was stored.


@frozen
class TopicList:
    """All requested topics."""

    topics: tuple[TopicSummary, ...]


@frozen(kw_only=True)
class TopicOnBroker:
    """Settings of a topic on one broker group; None: no answer."""

    broker: str
    address: str
    read_queues: int | None
    write_queues: int | None
    perm: str | None
    order: bool | None


@frozen(kw_only=True)
class QueueState:
    """One queue: the offsets of its first message and of its next one."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_update_ms: int | None


@frozen(kw_only=True)
class TopicConsumer:
    """One group that reads the topic; `lag_messages` is None if it never committed an offset."""

    group: str
    clients: int
    message_model: str | None
    lag_messages: int | None


@frozen(kw_only=True)
class TopicDetail:
    """One topic: its settings on each broker, its queues, and its readers."""

    name: str
    brokers: tuple[TopicOnBroker, ...]
    queues: tuple[QueueState, ...]
    consumers: tuple[TopicConsumer, ...]


@frozen(kw_only=True)
class TopicSetting:
    """Settings of a topic on one broker, before and after a change; None: not there."""

    broker: str
    address: str
    before_read_queues: int | None
    before_write_queues: int | None
    before_perm: str | None
    read_queues: int | None
    write_queues: int | None
    perm: str | None


@frozen(kw_only=True)
class TopicChange:
    """A change of a topic, made or (`done` false) only planned."""

    name: str
    settings: tuple[TopicSetting, ...]
    hidden_messages: int | None  # In queues that would no longer be read.
    messages: int | None  # Of the topic, for a deletion.
    consumers: tuple[TopicConsumer, ...]
    silent: tuple[str, ...] = ()  # Brokers that do not report its readers, for a deletion.
    done: bool


def planned(name: str, settings: list[TopicSetting]) -> TopicChange:
    """A change that is not yet made."""
    return TopicChange(name=name, settings=tuple(settings), hidden_messages=0, messages=None, consumers=(), done=False)


def setting(target: Target, before: TopicConfig | None, after: TopicConfig | None) -> TopicSetting:
    """One broker of a change."""
    return TopicSetting(
        broker=target.broker,
        address=target.address,
        before_read_queues=before.read_queues if before else None,
        before_write_queues=before.write_queues if before else None,
        before_perm=perm_text(before.perm) if before else None,
        read_queues=after.read_queues if after else None,
        write_queues=after.write_queues if after else None,
        perm=perm_text(after.perm) if after else None,
    )


def queue_state(queue: MessageQueue, offsets: QueueOffsets) -> QueueState:
    """One queue, from its broker's answer."""
    return QueueState(
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        min_offset=offsets.min_offset,
        max_offset=offsets.max_offset,
        messages=offsets.max_offset - offsets.min_offset,
        last_update_ms=offsets.last_update_ms or None,
    )


def consumers_of(topic: str, reported: Iterable[BrokerView | None]) -> tuple[TopicConsumer, ...]:
    """Readers of a topic over all brokers; those that do not answer add nothing."""
    views = [view for view in reported if view is not None]
    groups = sorted({group for view in views for _, group in view.offsets})
    return tuple(_consumer_of(group, topic, views) for group in groups)


def _consumer_of(group: str, topic: str, views: list[BrokerView]) -> TopicConsumer:
    connected = [view.consumers[group] for view in views if group in view.consumers]
    lags = [row.lag_messages or 0 for row in queue_lags(views, group, topic) if row.committed_offset is not None]
    has_committed = any(view.offsets.get((topic, group)) for view in views)
    return TopicConsumer(
        group=group,
        clients=len(clients_of(views, group)),
        message_model=connected[0].message_model.lower() if connected else None,
        lag_messages=sum(lags) if has_committed else None,
    )


def perm_text(perm: int) -> str:
    """RW, R-, -W or --."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-")


def perm_of(text: str) -> int:
    """The reverse, from RW, R or W in either order."""
    return (4 if "R" in text else 0) | (2 if "W" in text else 0)


def summary_of(name: str, queue_data: tuple[QueueData, ...], tables: Collection[_Ends | None]) -> TopicSummary:
    """One line of `topic list`, from the route and each broker's offsets (None: no answer)."""
    offsets = [each for table in tables if table is not None for each in table.values()]
    known = None not in tables
    return TopicSummary(
        name=name,
        brokers=tuple(data.broker_name for data in queue_data),
        read_queues=sum(data.read_queues for data in queue_data),
        write_queues=sum(data.write_queues for data in queue_data),
        perm="/".join(sorted({data.perm_text for data in queue_data})),
        min_offset_sum=sum(each.min_offset for each in offsets) if known else None,
        max_offset_sum=sum(each.max_offset for each in offsets) if known else None,
        messages=sum(each.max_offset - each.min_offset for each in offsets) if known else None,
        last_update_ms=max((each.last_update_ms for each in offsets if each.last_update_ms), default=None),
    )


def is_system_topic(name: str, own_names: set[str]) -> bool:
    """Made by RocketMQ itself: fixed names, retry and dead letter topics, one named like each broker and cluster."""
    return (
        name in SYSTEM_TOPICS
        or name in own_names
        or name.startswith(SYSTEM_PREFIXES)
        or (name.endswith("_REPLY_TOPIC") and name.removesuffix("_REPLY_TOPIC") in own_names)
    )


async def route_of(api: ClientApi, name: str) -> TopicRoute:
    """The route of a topic. Raises NoTopicError."""
    route = await api.topic_route(name)
    if route is None:
        raise NoTopicError(name)
    return route


async def view_of_readers(api: ClientApi, at: Target, topic: str, ends: _Ends) -> BrokerView | None:
    """One broker's report about the groups that read a topic; None: no answer."""
    try:
        groups = await admin_requests.groups_of_topic(api, at.address, topic)
        offsets = await admin_requests.all_offsets(api, at.address) if groups else {}
        connected = await in_parallel(partial(admin_requests.consumers_of, api, at.address, each) for each in groups)
    except RemotingError:
        return None
    committed = {(topic, each): offsets.get((topic, each), {}) for each in groups}
    consumers = {group: each for group, each in zip(groups, connected, strict=True) if each is not None}
    return BrokerView(at, committed, {topic: ends}, {}, consumers)


@frozen
class TopicAdmin:
    """The operations on topics."""

    api: ClientApi

    async def summaries(self, *, all_topics: bool = False) -> tuple[TopicSummary, ...]:
        """Every topic, those of RocketMQ itself only with `all_topics`. Raises RemotingError without a name server."""
        groups = await self.api.cluster()
        own = {name for group in groups for name in (group.cluster, group.broker_name)}
        names = [name for name in await self.api.topics() if all_topics or not is_system_topic(name, own)]
        found = await in_parallel(partial(self._summary, name) for name in names)
        return tuple(topic for topic in found if topic is not None)

    async def _summary(self, name: str) -> TopicSummary | None:
        route = await self.api.topic_route(name)
        if route is None:
            return None
        return summary_of(name, route.queue_data, (await self._stats(route)).values())

    async def _stats(self, route: TopicRoute) -> dict[str, _Ends | None]:
        """Offsets of the topic's queues by broker; None: no answer."""
        at = readers(tuple(route.brokers.values()))
        tables = await in_parallel(partial(self._stats_of, each.address, route.topic) for each in at)
        return {each.broker: table for each, table in zip(at, tables, strict=True)}

    async def _stats_of(self, address: str, topic: str) -> _Ends | None:
        try:
            return await self.api.topic_stats(address, topic)
        except RemotingError:
            return None

    async def show(self, name: str) -> TopicDetail:
        """Everything about one topic. Raises NoTopicError, and RemotingError without a name server."""
        route = await route_of(self.api, name)
        tables = await self._stats(route)
        at = readers(tuple(route.brokers.values()))
        return TopicDetail(
            name=name,
            brokers=tuple(await in_parallel(partial(self._on_broker, each, name) for each in at)),
            queues=tuple(
                queue_state(queue, offsets)
                for table in tables.values()
                for queue, offsets in sorted((table or {}).items(), key=lambda each: each[0])
            ),
            consumers=consumers_of(name, (await self._views(at, name, tables)).values()),
        )

    async def _on_broker(self, at: Target, name: str) -> TopicOnBroker:
        try:
            config = await admin_requests.topic_config(self.api, at.address, name)
        except RemotingError:
            config = None
        return TopicOnBroker(
            broker=at.broker,
            address=at.address,
            read_queues=config.read_queues if config else None,
            write_queues=config.write_queues if config else None,
            perm=perm_text(config.perm) if config else None,
            order=config.order if config else None,
        )

    async def _views(
        self, at: tuple[Target, ...], name: str, tables: Mapping[str, _Ends | None]
    ) -> dict[str, BrokerView | None]:
        """Reports of brokers about the topic's readers, by name; None: no answer."""
        found = await in_parallel(
            partial(view_of_readers, self.api, each, name, tables.get(each.broker) or {}) for each in at
        )
        return {each.broker: view for each, view in zip(at, found, strict=True)}

    # ---- Changes

    async def prepare_create(self, wanted: TopicConfig, brokers: tuple[str, ...], cluster: str | None) -> TopicChange:
        """Plan a new topic. Raises TopicExistsError, NoMemberError, NoMasterError."""
        targets = await masters(self.api, brokers=brokers, cluster=cluster)
        present = await in_parallel(
            partial(admin_requests.topic_config, self.api, t.address, wanted.name) for t in targets
        )
        if there := tuple(t.broker for t, config in zip(targets, present, strict=True) if config is not None):
            raise TopicExistsError(wanted.name, there)
        return planned(wanted.name, [setting(target, None, wanted) for target in targets])

    async def prepare_update(
        self,
        name: str,
        *,
        read_queues: int | None,
        write_queues: int | None,
        perm: int | None,
        brokers: tuple[str, ...],
        cluster: str | None,
    ) -> TopicChange:
        """Change what is given, on every broker of these that has the topic. Raises NoTopicError, NoMasterError."""
        targets = await masters(self.api, brokers=brokers, cluster=cluster)
        present = await in_parallel(partial(admin_requests.topic_config, self.api, t.address, name) for t in targets)
        settings: list[TopicSetting] = []
        hidden: int | None = 0
        for target, before in zip(targets, present, strict=True):
            if before is None:
                continue
            after = evolve(
                before,
                read_queues=before.read_queues if read_queues is None else read_queues,
                write_queues=before.write_queues if write_queues is None else write_queues,
                perm=before.perm if perm is None else perm,
            )
            settings.append(setting(target, before, after))
            if after.read_queues < before.read_queues:
                table = await self._stats_of(target.address, name)
                hidden = None if hidden is None or table is None else hidden + _messages_from(table, after.read_queues)
        if not settings:
            raise NoTopicError(name)
        return evolve(planned(name, settings), hidden_messages=hidden)

    async def apply(self, change: TopicChange) -> TopicChange:
        """Carry a creation or an update out, broker by broker. Raises RemotingError, PartlyDoneError."""
        await carry_out([(each.broker, partial(self._set, change.name, each)) for each in change.settings])
        return evolve(change, done=True)

    async def _set(self, name: str, setting: TopicSetting) -> None:
        before = await admin_requests.topic_config(self.api, setting.address, name)
        wanted = before or TopicConfig(name)
        wanted = evolve(wanted, read_queues=setting.read_queues or 0, write_queues=setting.write_queues or 0)
        await admin_requests.update_topic(self.api, setting.address, evolve(wanted, perm=perm_of(setting.perm or "")))

    async def prepare_delete(self, name: str) -> TopicChange:
        """Plan a deletion. Raises NoTopicError, and NoMasterError when a broker with the topic has no master now."""
        route = await route_of(self.api, name)
        targets = await masters(self.api, brokers=tuple(route.brokers))
        present = await in_parallel(partial(admin_requests.topic_config, self.api, t.address, name) for t in targets)
        tables = await self._stats(route)
        views = await self._views(targets, name, tables)
        settings = [setting(target, before, None) for target, before in zip(targets, present, strict=True)]
        return evolve(
            planned(name, settings),
            messages=summary_of(name, route.queue_data, tables.values()).messages,
            consumers=consumers_of(name, views.values()),
            silent=tuple(broker for broker, view in views.items() if view is None),
        )

    async def delete(self, change: TopicChange) -> TopicChange:
        """Let masters forget the topic, then every name server. Its messages go with the log's files, offsets stay.

        Raises RemotingError, PartlyDoneError.
        """
        steps: list[Step] = [
            (each.broker, partial(admin_requests.delete_topic, self.api, each.address, change.name))
            for each in change.settings
        ]
        await carry_out([*steps, ("the name servers", partial(admin_requests.forget_topic, self.api, change.name))])
        return evolve(change, done=True)


def _messages_from(table: _Ends, queue_id: int) -> int:
    """Messages in the queues from `first` on."""
    return sum(each.max_offset - each.min_offset for queue, each in table.items() if queue.queue_id >= queue_id)

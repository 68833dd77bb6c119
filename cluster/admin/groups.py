"""Consumer groups: list, show, create, change and delete them; results are frozen, and pure functions make them."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from attrs import evolve, frozen

from twinlog.cluster.admin.errors import Step, carry_out
from twinlog.cluster.broker.tables.groups import BUILT_IN_GROUPS, SubscriptionGroupConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe import consumption
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.consumption import BrokerView, LagReport, QueueLag, TopicLag
from twinlog.cluster.observe.gather import Target, masters
from twinlog.cluster.observe.requests import ConnectedClient
from twinlog.cluster.remoting import names
from twinlog.cluster.user_errors import NOT_FOUND, REFUSED, UserError


class NoGroupError(UserError):
    """No broker knows the group."""

    http_status = NOT_FOUND
    next_step = "See what there is with: twinlog group list --all"

    def __init__(self, name: str) -> None:
        super().__init__(f"no broker that is registered now knows the group {name}")
        self.name = name


class GroupExistsError(UserError):
    """A group of this name exists already."""

    exit_status = REFUSED
    next_step = "Change it with: twinlog group update {name}"

    def __init__(self, name: str, brokers: tuple[str, ...]) -> None:
        super().__init__(f"the group {name} exists already, on {', '.join(brokers)}")
        self.name = name


class GroupOnlineError(UserError):
    """The group's consumers are connected, and the operation needs them disconnected."""

    exit_status = REFUSED
    next_step = "Stop them first; see them with: twinlog group show {name}"

    def __init__(self, name: str, clients: tuple[str, ...], why: str) -> None:
        super().__init__(f"{why}: {', '.join(clients[:3])}{' ...' if len(clients) > 3 else ''}")
        self.name = name


@frozen(kw_only=True)
class GroupSummary:
    """One group over all brokers. `state`: consuming, no consumer (it has offsets), or unused."""

    name: str
    clients: int
    message_model: str | None
    topics: int
    lag_messages: int | None
    state: str


@frozen
class GroupList:
    """All requested groups; `silent` are broker groups that did not answer completely."""

    groups: tuple[GroupSummary, ...]
    silent: tuple[str, ...]


@frozen(kw_only=True)
class GroupSettings:
    """Settings of a group on one broker."""

    broker: str
    consume: bool
    consume_from_min: bool
    broadcast: bool
    retry_max: int
    retry_queues: int
    slow_read_broker_id: int


@frozen(kw_only=True)
class GroupDetail:
    """One group: its settings on each broker, its connected clients, their subscriptions, and its lag."""

    name: str
    message_model: str | None
    consume_type: str | None
    consume_from: str | None
    settings: tuple[GroupSettings, ...]
    clients: tuple[ConnectedClient, ...]
    subscriptions: Mapping[str, str]
    topics: tuple[TopicLag, ...]
    queues: tuple[QueueLag, ...]


@frozen(kw_only=True)
class GroupSettingChange:
    """The settings of a group on one broker before and after; None: not there."""

    broker: str
    address: str
    before: GroupSettings | None
    after: GroupSettings | None


@frozen(kw_only=True)
class GroupChange:
    """A change of a group, made or (`done` false) only planned."""

    name: str
    changes: tuple[GroupSettingChange, ...]
    with_offsets: bool
    topics: tuple[str, ...]  # Of retries and dead letters, that go with it.
    topic_messages: int | None
    lag: tuple[TopicLag, ...]
    done: bool


def is_system_group(name: str) -> bool:
    """Made by RocketMQ itself."""
    return name in BUILT_IN_GROUPS or name.startswith((names.SYSTEM_GROUP_PREFIX, "CID_ONS"))


def summary_of(views: tuple[BrokerView, ...], name: str) -> GroupSummary:
    """One line of `group list`."""
    topics = consumption.topics_of(views, name)
    rows = [row for topic in topics for row in consumption.queue_lags(views, name, topic)]
    connected = [view.consumers[name] for view in views if name in view.consumers]
    models = {each.message_model for each in connected}
    lags = [row.lag_messages for row in rows if row.lag_messages is not None]
    return GroupSummary(
        name=name,
        clients=len(consumption.clients_of(views, name)),
        message_model="/".join(sorted(models)).lower() or None,
        topics=len(topics),
        lag_messages=sum(lags) if lags and consumption.BROADCAST not in models else None,
        state="consuming" if connected else "no consumer" if topics else "unused",
    )


def settings_of(target: Target, config: SubscriptionGroupConfig) -> GroupSettings:
    """The settings that one broker reports."""
    return GroupSettings(
        broker=target.broker,
        consume=config.consume_enable,
        consume_from_min=config.consume_from_min_enable,
        broadcast=config.consume_broadcast_enable,
        retry_max=config.retry_times_max,
        retry_queues=config.retry_queues,
        slow_read_broker_id=config.which_broker_when_consume_slowly,
    )


def setting_change(
    target: Target, before: SubscriptionGroupConfig | None, after: SubscriptionGroupConfig | None
) -> GroupSettingChange:
    """One broker of a change."""
    return GroupSettingChange(
        broker=target.broker,
        address=target.address,
        before=settings_of(target, before) if before else None,
        after=settings_of(target, after) if after else None,
    )


def planned(name: str, changes: list[GroupSettingChange]) -> GroupChange:
    """A change that is not yet made."""
    return GroupChange(
        name=name, changes=tuple(changes), with_offsets=False, topics=(), topic_messages=0, lag=(), done=False
    )


@frozen
class GroupAdmin:
    """The operations on groups."""

    api: ClientApi

    async def summaries(self, *, all_groups: bool = False) -> GroupList:
        """Every group, RocketMQ's own only with `all_groups`. Raises RemotingError without a name server."""
        views, silent = await consumption.survey(self.api)
        found = [name for name in consumption.groups_in(views) if all_groups or not is_system_group(name)]
        return GroupList(tuple(summary_of(views, name) for name in found), silent)

    async def show(self, name: str) -> GroupDetail:
        """Everything about one group. Raises NoGroupError, and RemotingError without a name server."""
        views, _ = await consumption.survey(self.api, [name])
        if not any(name in view.groups or name in view.consumers for view in views) and not consumption.topics_of(
            views, name
        ):
            raise NoGroupError(name)
        report = await self._report(views, name)
        connected = next((view.consumers[name] for view in views if name in view.consumers), None)
        return GroupDetail(
            name=name,
            message_model=connected.message_model.lower() if connected else None,
            consume_type=connected.consume_type if connected else None,
            consume_from=connected.consume_from if connected else None,
            settings=tuple(settings_of(view.target, view.groups[name]) for view in views if name in view.groups),
            clients=consumption.clients_of(views, name),
            subscriptions=dict(connected.subscriptions) if connected else {},
            topics=report.topics,
            queues=report.queues,
        )

    async def lag(self, name: str | None = None) -> LagReport:
        """Lag of groups: of all by topic or, for one, by queue with its owner. Raises NoGroupError."""
        views, silent = await consumption.survey(self.api, None if name is None else [name])
        if name is not None:
            if name not in consumption.groups_in(views) and not any(name in view.consumers for view in views):
                raise NoGroupError(name)
            return evolve(await self._report(views, name), silent=silent)
        pairs = [
            (group, topic)
            for group in consumption.groups_in(views)
            if not is_system_group(group)
            for topic in consumption.topics_of(views, group)
        ]
        rows = tuple(row for pair in pairs for row in consumption.queue_lags(views, *pair))
        rows = await consumption.with_seconds(self.api, views, rows)
        by_pair: dict[tuple[str, str], list[QueueLag]] = {}
        for row in rows:
            by_pair.setdefault((row.group, row.topic), []).append(row)
        topics = tuple(consumption.topic_lag(views, found, *pair) for pair, found in by_pair.items())
        return LagReport(topics, (), _now_ms(), silent)

    async def _report(self, views: tuple[BrokerView, ...], name: str) -> LagReport:
        topics: list[TopicLag] = []
        queues: list[QueueLag] = []
        for topic in consumption.topics_of(views, name):
            rows = await consumption.with_seconds(self.api, views, consumption.queue_lags(views, name, topic))
            rows = await consumption.with_consumers(self.api, views, rows, name)
            if rows:
                topics.append(consumption.topic_lag(views, rows, name, topic))
                queues += rows
        return LagReport(tuple(topics), tuple(queues), _now_ms())

    # ---- Changes

    async def prepare_create(
        self, name: str, settings: Mapping[str, Any], brokers: tuple[str, ...], cluster: str | None
    ) -> GroupChange:
        """Plan a new group. `settings` are fields of SubscriptionGroupConfig. Raises GroupExistsError."""
        targets, present = await self._present(name, brokers, cluster)
        if there := tuple(t.broker for t, config in zip(targets, present, strict=True) if config is not None):
            raise GroupExistsError(name, there)
        wanted = SubscriptionGroupConfig(name=name, **settings)
        return planned(name, [setting_change(target, None, wanted) for target in targets])

    async def prepare_update(
        self, name: str, settings: Mapping[str, Any], brokers: tuple[str, ...], cluster: str | None
    ) -> GroupChange:
        """Plan a change of the given settings on each of these brokers that knows the group. Raises NoGroupError."""
        targets, present = await self._present(name, brokers, cluster)
        changes = [
            setting_change(target, before, evolve(before, **settings))
            for target, before in zip(targets, present, strict=True)
            if before is not None
        ]
        if not changes:
            raise NoGroupError(name)
        return planned(name, changes)

    async def apply(self, change: GroupChange, settings: Mapping[str, Any]) -> GroupChange:
        """Carry a creation or an update out, broker by broker. Raises RemotingError, PartlyDoneError."""
        await carry_out(
            [(each.broker, partial(self._set, change.name, each.address, settings)) for each in change.changes]
        )
        return evolve(change, done=True)

    async def _set(self, name: str, address: str, settings: Mapping[str, Any]) -> None:
        known = await admin_requests.group_configs(self.api, address)
        config = known.get(name) or SubscriptionGroupConfig(name=name)
        await admin_requests.update_group(self.api, address, evolve(config, **settings))

    async def prepare_delete(self, name: str, *, with_offsets: bool, with_dead_letters: bool) -> GroupChange:
        """Plan a deletion. Raises NoGroupError, and GroupOnlineError while consumers are connected: they would create it again.

        Raises SilentBrokersError when a broker does not answer that.
        """
        targets, present = await self._present(name, (), None)
        views = await consumption.ask_all_brokers(self.api, [name])
        if clients := consumption.clients_of(views, name):
            ids = tuple(each.client_id for each in clients)
            raise GroupOnlineError(name, ids, "its consumers are connected, and would create it again")
        changes = [
            setting_change(target, before, None)
            for target, before in zip(targets, present, strict=True)
            if before is not None
        ]
        lag = (await self._report(views, name)).topics
        if not changes and not lag:
            raise NoGroupError(name)
        kinds = (names.retry_topic, names.dlq_topic) if with_dead_letters else (names.retry_topic,)
        topics = [topic(name) for topic in kinds]
        routes = [await self.api.topic_route(topic) for topic in topics]
        there = tuple(topic for topic, route in zip(topics, routes, strict=True) if route is not None)
        changes = changes or [setting_change(target, None, None) for target in targets]
        messages = await self._messages(targets, there)
        return evolve(planned(name, changes), with_offsets=with_offsets, topics=there, topic_messages=messages, lag=lag)

    async def _messages(self, targets: tuple[Target, ...], topics: tuple[str, ...]) -> int | None:
        total = 0
        for topic in topics:
            for target in targets:
                table = await consumption.ends_of(self.api, target.address, topic)
                if table is None:
                    return None
                total += sum(each.max_offset - each.min_offset for each in table.values())
        return total

    async def delete(self, change: GroupChange) -> GroupChange:
        """Delete the group and its topics on the masters. Raises RemotingError, PartlyDoneError."""
        delete_group = partial(admin_requests.delete_group, group=change.name, with_offsets=change.with_offsets)
        steps: list[Step] = []
        for each in change.changes:
            steps.append((each.broker, partial(delete_group, self.api, each.address)))
            for topic in change.topics:
                delete_topic = partial(admin_requests.delete_topic, self.api, each.address, topic)
                steps.append((f"{each.broker} {topic}", delete_topic))
        for topic in change.topics:
            steps.append((f"{topic} on the name servers", partial(admin_requests.forget_topic, self.api, topic)))
        await carry_out(steps)
        return evolve(change, done=True)

    async def _present(
        self, name: str, brokers: tuple[str, ...], cluster: str | None
    ) -> tuple[tuple[Target, ...], list[SubscriptionGroupConfig | None]]:
        targets = await masters(self.api, brokers=brokers, cluster=cluster)
        tables = await in_parallel(partial(admin_requests.group_configs, self.api, each.address) for each in targets)
        return targets, [table.get(name) for table in tables]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""What is told of consumer groups, and of changes of them: frozen results, and the pure functions that make them."""

from collections.abc import Mapping

from attrs import frozen

from twinlog.cluster.broker.tables.groups import BUILT_IN_GROUPS, SubscriptionGroupConfig
from twinlog.cluster.observe import consumption
from twinlog.cluster.observe.consumption import BrokerView, QueueLag, TopicLag
from twinlog.cluster.observe.requests import Client
from twinlog.cluster.observe.targets import Target
from twinlog.cluster.remoting import names


class NoGroupError(Exception):
    """No broker knows such a group."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no broker that is registered now knows the group {name}")
        self.name = name


class GroupExistsError(Exception):
    """It is there already."""

    def __init__(self, name: str, brokers: tuple[str, ...]) -> None:
        super().__init__(f"the group {name} exists already, on {', '.join(brokers)}")
        self.name = name


class GroupOnlineError(Exception):
    """Its consumers are connected, and what is asked for needs them gone."""

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
    """Every group that was asked for; `silent` are broker groups that did not answer everything."""

    groups: tuple[GroupSummary, ...]
    silent: tuple[str, ...]


@frozen(kw_only=True)
class GroupSettings:
    """What a group may do on one broker."""

    broker: str
    consume: bool
    consume_from_min: bool
    broadcast: bool
    retry_max: int
    retry_queues: int
    slow_read_broker_id: int


@frozen(kw_only=True)
class GroupDetail:
    """One group: its settings on each broker, its connected clients, what they want, and how far it is."""

    name: str
    message_model: str | None
    consume_type: str | None
    consume_from: str | None
    settings: tuple[GroupSettings, ...]
    clients: tuple[Client, ...]
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
    """What one broker says."""
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

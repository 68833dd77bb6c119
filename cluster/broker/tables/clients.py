"""Connected clients: consumers and producers by group, each known by its connection. Pure tables.

Sources: ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java, ClientChannelInfo.java (RocketMQ 4.9.8).
A client registers by heartbeats; it is removed after 120 s without one, and when its connection closes.
"""

from collections.abc import Callable, Iterable, Mapping

import structlog
from attrs import define, field, frozen

from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.connection import Connection

log = structlog.get_logger(__name__)

CLIENT_SILENCE_SECONDS_MAX = 120.0
PRODUCER_GROUPS_PER_CONNECTION_MAX = 1_000  # Ours.


@frozen
class ClientInfo:
    connection: Connection
    client_id: str
    language: str
    version: int
    last_seen: float  # Seconds, monotonic.


@define(kw_only=True, eq=False)
class ConsumerGroupInfo:
    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[Connection, ClientInfo] = field(factory=dict, init=False)
    subscriptions: dict[str, SubscriptionData] = field(factory=dict, init=False)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == "BROADCASTING"

    @property
    def client_ids(self) -> list[str]:
        """Ids without duplicates: a client with a second connection must not get queues twice."""
        return list(dict.fromkeys(client.client_id for client in self.clients.values()))

    def find_client(self, client_id: str) -> ClientInfo | None:
        """Return the member with this id; of several connections the one with the latest heartbeat."""
        found = [client for client in self.clients.values() if client.client_id == client_id]
        return max(found, key=lambda client: client.last_seen, default=None)

    def update_client(self, client: ClientInfo) -> bool:
        """Add or refresh a client; True when its connection is new."""
        old = self.clients.get(client.connection)
        if old is not None and old.client_id != client.client_id:
            log.warning(
                "a connection changed its client id", group=self.group, before=old.client_id, now=client.client_id
            )
        self.clients[client.connection] = client
        return old is None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace subscriptions by later versions and drop topics no longer listed; True when the topics changed."""
        listed = {subscription.topic: subscription for subscription in subscriptions}
        before = self.subscriptions
        self.subscriptions = {
            topic: new if (old := before.get(topic)) is None or new.sub_version > old.sub_version else old
            for topic, new in listed.items()
        }
        if topics_changed := before.keys() != listed.keys():
            log.info("a consumer group changed its topics", group=self.group, topics=len(listed))
        return topics_changed


@define(eq=False)
class ConsumerManager:
    """`notify` is called with a group and its connections when members or topics changed (request 40)."""

    now: Callable[[], float]
    notify: Callable[[str, list[Connection]], None] = lambda _group, _connections: None
    gone: Callable[[str], None] = lambda _group: None  # Called with a group whose last consumer left.
    groups: dict[str, ConsumerGroupInfo] = field(factory=dict, init=False)

    def find(self, group: str) -> ConsumerGroupInfo | None:
        return self.groups.get(group)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        info = self.groups.get(group)
        return info.subscriptions.get(topic) if info else None

    def groups_of_topic(self, topic: str) -> list[str]:
        return [info.group for info in self.groups.values() if topic in info.subscriptions]

    def register(
        self,
        group: str,
        client: ClientInfo,
        subscriptions: Iterable[SubscriptionData],
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        notify: bool = True,
    ) -> bool:
        """Register a client in a group, as its heartbeat says; True when members or topics changed."""
        info = self.groups.setdefault(group, ConsumerGroupInfo(group=group))
        info.consume_type, info.message_model = consume_type, message_model
        info.consume_from_where = consume_from_where
        is_new = info.update_client(client)
        changed = info.update_subscriptions(subscriptions) or is_new
        if changed and notify:
            self.notify(group, list(info.clients))
        return changed

    def unregister(self, group: str, connection: Connection, *, notify: bool = True) -> None:
        info = self.groups.get(group)
        if info is not None and info.clients.pop(connection, None) is not None:
            self._left(info, notify)

    def connection_closed(self, connection: Connection) -> None:
        for info in list(self.groups.values()):
            if info.clients.pop(connection, None) is not None:
                self._left(info, True)

    def _left(self, info: ConsumerGroupInfo, notify: bool) -> None:
        if not info.clients:
            del self.groups[info.group]
            self.gone(info.group)
        elif notify:
            self.notify(info.group, list(info.clients))

    def expire(self) -> set[Connection]:
        """Remove clients without heartbeats from their groups; return their connections."""
        clients = {info.group: info.clients for info in self.groups.values()}
        return _expire(clients, self.now(), self.unregister)

    def has(self, connection: Connection) -> bool:
        return any(connection in info.clients for info in self.groups.values())


@define(eq=False)
class ProducerManager:
    now: Callable[[], float]
    groups: dict[str, dict[Connection, ClientInfo]] = field(factory=dict, init=False)
    _by_id: dict[str, Connection] = field(factory=dict, init=False)
    _groups_of: dict[Connection, set[str]] = field(factory=dict, init=False)
    _next: int = field(default=0, init=False)

    def register(self, group: str, client: ClientInfo) -> None:
        """Register a client in a group, as its heartbeat says. Raises RequestError above a limit of groups."""
        clients, of_it = self.groups.get(group), self._groups_of.get(client.connection, set())
        if clients is None:
            names.require_room("producer groups", len(self.groups), names.GROUPS_MAX)
        if group not in of_it:
            most = PRODUCER_GROUPS_PER_CONNECTION_MAX
            names.require_room("producer groups of one connection", len(of_it), most)
        clients = self.groups.setdefault(group, {})
        self._groups_of.setdefault(client.connection, of_it).add(group)
        old = clients.get(client.connection)
        clients[client.connection] = client
        self._by_id[client.client_id] = client.connection
        if old is not None and old.client_id != client.client_id:
            self._forget_id(old)

    def find(self, client_id: str) -> Connection | None:
        """Return the connection of the client's latest heartbeat."""
        return self._by_id.get(client_id)

    def _forget_id(self, client: ClientInfo) -> None:
        """Forget the id of a client, unless its connection has that id in another group."""
        if self._by_id.get(client.client_id) != client.connection:
            return
        others = (self.groups[group][client.connection] for group in self._groups_of.get(client.connection, ()))
        if not any(other.client_id == client.client_id for other in others):
            del self._by_id[client.client_id]

    def next_of(self, group: str, is_idle: Callable[[Connection], bool]) -> Connection | None:
        """Return a connection of the group in round robin, an idle one if there is any; None if the group is empty."""
        connections = list(self.groups.get(group, ()))
        if not connections:
            return None
        self._next += 1
        start = self._next % len(connections)
        rotated = connections[start:] + connections[:start]
        return next(filter(is_idle, rotated), rotated[0])

    def unregister(self, group: str, connection: Connection) -> None:
        clients = self.groups.get(group)
        client = clients.pop(connection, None) if clients is not None else None
        if client is None:
            return
        if not clients:
            del self.groups[group]
        of_it = self._groups_of[connection]
        of_it.discard(group)
        if not of_it:
            del self._groups_of[connection]
        self._forget_id(client)

    def connection_closed(self, connection: Connection) -> None:
        for group in list(self._groups_of.get(connection, ())):
            self.unregister(group, connection)

    def expire(self) -> set[Connection]:
        """Remove clients without heartbeats from their groups; return their connections."""
        return _expire(self.groups, self.now(), self.unregister)

    def has(self, connection: Connection) -> bool:
        return connection in self._groups_of


def _expire(
    groups: Mapping[str, Mapping[Connection, ClientInfo]], now: float, unregister: Callable[[str, Connection], None]
) -> set[Connection]:
    silent = [
        (group, connection)
        for group, clients in groups.items()
        for connection, client in clients.items()
        if now - client.last_seen > CLIENT_SILENCE_SECONDS_MAX
    ]
    for group, connection in silent:
        unregister(group, connection)
    return {connection for _, connection in silent}


@define(eq=False, repr=False)
class ClientConnections:
    """Connections of clients: `closed` are called when one closes, to remove what belongs to it."""

    closed: tuple[Callable[[Connection], None], ...]
    _watched: set[Connection] = field(factory=set, init=False)

    def watch(self, connection: Connection) -> None:
        """Have the callbacks called when this connection closes; at once if it is closed."""
        if connection.closed:
            self._forget(connection)
        elif connection not in self._watched:
            self._watched.add(connection)
            connection.on_close.append(self._forget)

    def _forget(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for callback in self.closed:
            callback(connection)

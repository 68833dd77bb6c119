"""Tables of a name server: clusters, broker groups, queues, live brokers. Pure: the caller passes the time.

    clusters   cluster -> names of its broker groups
    brokers    broker name -> its cluster and the address of each id (0 is the master)
    queues     topic -> broker name -> number of queues, and permissions
    live       address -> time and connection of the last registration

A route to a topic needs an entry in `queues` and an address in `brokers`. Only masters fill `queues`, and only with a new
version of their table; a topic that is missing in a later version stays until the group's last address goes, or a request
deletes it. Every method checks first, then changes. Source: RouteInfoManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.names import DataVersion
from twinlog.cluster.remoting.route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerAddresses, QueueData

PERM_READ_WRITE = PERM_READ | PERM_WRITE


@frozen
class LiveBroker:
    """A registered address."""

    registered_at: float  # Seconds of the caller's clock.
    data_version: DataVersion
    connection: object  # When it ends, the broker is dropped.
    ha_server_addr: str
    timeout: float | None = None  # Seconds without registration after which it is dropped, if it says so (5.x).


@frozen
class Registration:
    """A broker's registration. `topics`: all of its topics, or only those that changed."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_addr: str
    data_version: DataVersion
    topics: Mapping[str, QueueData]
    timeout: float | None = None  # Seconds; None: the name server's own.


@frozen
class Registered:
    """The response to a registration; for a slave with its master's addresses."""

    is_new: bool
    master_addr: str | None = None
    ha_server_addr: str | None = None


@define(eq=False)
class RouteInfoManager:
    """The tables and all changes of them."""

    clusters: dict[str, dict[str, None]] = field(factory=dict, init=False)  # Names as keys: a set that keeps order.
    brokers: dict[str, BrokerAddresses] = field(factory=dict, init=False)
    queues: dict[str, dict[str, QueueData]] = field(factory=dict, init=False)
    live: dict[str, LiveBroker] = field(factory=dict, init=False)

    def register(self, new: Registration, connection: object, now: float) -> Registered:
        """Add or refresh a broker. Raises RequestError when another cluster has a group of that name."""
        group = self.brokers.get(new.broker_name) or BrokerAddresses(new.cluster, new.broker_name)
        if group.cluster != new.cluster and set(group.addresses.values()) - {new.address}:
            remark = f"broker {new.broker_name} is registered in cluster {group.cluster}, not {new.cluster}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if group.cluster != new.cluster:
            self._leave_cluster(group)
            group = evolve(group, cluster=new.cluster)
        is_new = new.broker_id not in group.addresses
        # The same address under another id: a slave has become master, or the other way round.
        addresses = {number: address for number, address in group.addresses.items() if address != new.address}
        addresses[new.broker_id] = new.address
        self.brokers[new.broker_name] = evolve(group, addresses=addresses)
        self.clusters.setdefault(new.cluster, {})[new.broker_name] = None
        if new.broker_id == MASTER_ID and (is_new or self.is_changed(new.address, new.data_version)):
            for topic, queue in new.topics.items():
                self.queues.setdefault(topic, {})[new.broker_name] = queue
        self.live[new.address] = LiveBroker(now, new.data_version, connection, new.ha_server_addr, new.timeout)
        master = addresses.get(MASTER_ID)
        if new.broker_id == MASTER_ID or master not in self.live:
            return Registered(is_new)
        return Registered(is_new, master, self.live[master].ha_server_addr)

    def unregister(self, cluster: str, broker_name: str, broker_id: int, address: str) -> bool:
        """Remove a broker that shuts down; False when it is not registered like that, and nothing changes."""
        group = self.brokers.get(broker_name)
        if group is None or group.cluster != cluster or group.addresses.get(broker_id) != address:
            return False
        self._remove(address)
        return True

    def drop(self, connection: object) -> list[str]:
        """Remove the brokers that registered over a closed connection; returns their addresses."""
        return self._remove_all(a for a, broker in self.live.items() if broker.connection is connection)

    def expire(self, now: float, timeout: float) -> dict[str, object]:
        """Remove brokers that have not registered for `timeout` seconds, or for the time that they gave themselves.

        Returns their addresses and connections.
        """
        silent = {
            address: broker.connection
            for address, broker in self.live.items()
            if now - broker.registered_at > (broker.timeout or timeout)
        }
        self._remove_all(silent)
        return silent

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """True unless the broker's topics are known in this version."""
        return self.data_version(address) != version

    def data_version(self, address: str) -> DataVersion | None:
        """The version of the broker's topics at its last registration."""
        broker = self.live.get(address)
        return broker.data_version if broker else None

    def touch(self, address: str, now: float) -> None:
        """Note a heartbeat."""
        if broker := self.live.get(address):
            self.live[address] = evolve(broker, registered_at=now)

    def set_write_perm(self, broker_name: str, *, allowed: bool) -> int:
        """Allow or forbid writes to every queue of the group; returns the number of topics that have queues there.

        As in RocketMQ this lasts until the broker registers a changed table, and allowing writes drops the inherit bit.
        """
        touched = 0
        for shares in self.queues.values():
            if share := shares.get(broker_name):
                perm = PERM_READ_WRITE if allowed else share.perm & ~PERM_WRITE
                shares[broker_name] = evolve(share, perm=perm)
                touched += 1
        return touched

    def register_topic(self, topic: str, shares: Iterable[QueueData]) -> None:
        """Add or replace queues of a topic. Raises RequestError when a group of them is not registered."""
        shares = list(shares)
        for share in shares:
            if share.broker_name not in self.brokers:
                remark = f"topic {topic}: broker {share.broker_name} is not registered"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        for share in shares:
            self.queues.setdefault(topic, {})[share.broker_name] = share

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic's queues, all or those of one cluster."""
        shares = self.queues.get(topic, {})
        for name in list(shares):
            if not cluster or name in self.clusters.get(cluster, {}):
                del shares[name]
        if not shares:
            self.queues.pop(topic, None)

    def route(self, topic: str) -> dict[str, Any] | None:
        """TopicRouteData with int keys for the broker ids; None without a queue or a live broker for it."""
        shares = self.queues.get(topic, {})
        groups = [self.brokers[name].to_json() for name in shares if name in self.brokers]
        if not groups:
            return None
        queues = [share.to_json() for share in shares.values()]
        return {"brokerDatas": groups, "filterServerTable": {}, "queueDatas": queues}

    def member_group(self, cluster: str, broker_name: str) -> dict[str, Any]:
        """BrokerMemberGroup with int keys; without addresses when there is no such group in the cluster."""
        group = self.brokers.get(broker_name)
        if group is None or group.cluster != cluster:
            group = BrokerAddresses(cluster, broker_name)
        return group.to_json()

    def any_address(self) -> str | None:
        """The address of any broker, of a master if there is one; None without brokers."""
        numbered = (item for group in self.brokers.values() for item in group.addresses.items())
        return min(numbered, key=lambda item: item[0], default=(0, None))[1]

    def cluster_info(self) -> dict[str, Any]:
        """ClusterInfo with int keys for the broker ids."""
        return {
            "brokerAddrTable": {name: group.to_json() for name, group in self.brokers.items()},
            "clusterAddrTable": {cluster: list(names) for cluster, names in self.clusters.items()},
        }

    def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those with queues in a cluster."""
        if cluster is None:
            return list(self.queues)
        names = self.clusters.get(cluster, {}).keys()
        return [topic for topic, shares in self.queues.items() if names & shares.keys()]

    def unit_topics(self, *, flags: int, mask: int) -> list[str]:
        """Topics whose masked sys flag, in the first broker's entry, is `flags`."""
        return [
            topic for topic, shares in self.queues.items() if next(iter(shares.values())).topic_sys_flag & mask == flags
        ]

    def _remove_all(self, addresses: Iterable[str]) -> list[str]:
        gone = list(addresses)
        for address in gone:
            self._remove(address)
        return gone

    def _remove(self, address: str) -> None:
        """Remove an address from its group; a group without addresses is removed with its queues."""
        self.live.pop(address, None)
        for group in [group for group in self.brokers.values() if address in group.addresses.values()]:
            left = {number: other for number, other in group.addresses.items() if other != address}
            if left:
                self.brokers[group.broker_name] = evolve(group, addresses=left)
                continue
            del self.brokers[group.broker_name]
            self._leave_cluster(group)
            for topic in [topic for topic, shares in self.queues.items() if group.broker_name in shares]:
                del self.queues[topic][group.broker_name]
                if not self.queues[topic]:
                    del self.queues[topic]

    def _leave_cluster(self, group: BrokerAddresses) -> None:
        names = self.clusters.get(group.cluster, {})
        names.pop(group.broker_name, None)
        if not names:
            self.clusters.pop(group.cluster, None)


def told_outside(group: dict[str, Any], host: str) -> dict[str, Any]:
    """A group's JSON for clients that reach each of its brokers at another host, and at the port that it announces."""
    return group | {"brokerAddrs": {number: at_host(address, host) for number, address in group["brokerAddrs"].items()}}


def at_host(address: str, host: str) -> str:
    """The address with another host."""
    return f"{host}:{address.rpartition(':')[2]}"

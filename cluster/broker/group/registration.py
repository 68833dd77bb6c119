"""Registration of this broker with its name servers, and discovery of its group's other members.

    register (103): at start until it succeeds, 1 s and 10 s later, then each period; at each topic change; when the
                    connection was lost, because a name server drops a broker with its connection
    slave:  the responses name the master; while they do not, the slave registers each second
    all:    request (106) the other slaves of the group: each 5 s, each 0.5 s while an unregistered peer has a pending HA
            connection, since it may have just registered. A slave serves slaves of its own, too
    refused: a member whose group takes it for a copy takes back what is its own, and is held
    held:   nothing is registered, but members are requested: a member that does not know yet whether it is the master must
            not register as such, and has to find out

Each name server has its own task, so one that is down does not delay the others. Sources: BrokerController.registerBrokerAll,
BrokerOuterAPI.java, RegisterBrokerBody.java (RocketMQ 4.9.8).
"""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.calls import Response, call
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.namesrv import GetBrokerClusterInfo, RegisterBroker, UnregisterBroker
from twinlog.cluster.remoting.headers.responses import RegisterBrokerResponse
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.route import MASTER_ID, PERM_READ, PERM_WRITE
from twinlog.store.util.wakeup import Wakeup

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 1.0
EARLY_REPEATS_SECONDS = (1.0, 11.0)  # After the first success.


@frozen
class Master:
    """Master as a name server reports it to a slave. Fields are None without a master."""

    address: str | None
    ha_address: str | None


def registration_body(topics: TopicConfigManager, broker_permission: int) -> bytes:
    """Make a RegisterBrokerBody. The broker's own permission restricts that of all topics."""
    wrapper = topics.to_json()
    if broker_permission != PERM_READ | PERM_WRITE:
        for config in wrapper["topicConfigTable"].values():
            config["perm"] = broker_permission
    return fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def member_addresses(broker_name: str, cluster_info: Mapping[str, Any]) -> dict[int, str]:
    """Return the remoting address of each member of a group in the body of 106, by its id."""
    group = (cluster_info.get("brokerAddrTable") or {}).get(broker_name) or {}
    return {int(broker_id): str(address) for broker_id, address in (group.get("brokerAddrs") or {}).items()}


def slaves_of(
    members: Mapping[int, str], *, but: int = MASTER_ID, ip_of: Callable[[str], str] = ip_of
) -> set[tuple[int, str]]:
    """Return id and IP of each slave among a group's members, except for id `but`."""
    return {(broker_id, ip_of(address)) for broker_id, address in members.items() if broker_id not in (MASTER_ID, but)}


def next_pause(since_first: float, failures: int, period: float) -> float:
    """Return the seconds until the next registration, by the time since the first success and the failures since the last."""
    if failures:
        return float(min(RETRY_SECONDS_FIRST * 2 ** (min(failures, 10) - 1), RETRY_SECONDS_MAX))
    return next((at - since_first for at in EARLY_REPEATS_SECONDS if since_first < at), period)


KEPT_SECONDS = 120.0  # RouteInfoManager.BROKER_CHANNEL_EXPIRED_TIME, RocketMQ 4.9.8.


@define
class RegisteredSlaves:
    """Registered slaves by (brokerId, IP), with the last time that a name server named them. Pure.

    A restarted name server knows no brokers until they register again, which takes a RocketMQ slave up to 30 s. So a slave is
    kept as long as a name server itself keeps a silent broker: its connection and acks may be fine.
    """

    _seen: dict[tuple[int, str], float] = field(factory=dict, init=False)

    def answered(self, slaves: Iterable[tuple[int, str]], now: float) -> list[str]:
        """Take the slaves in the responses of all name servers; return the IPs of those that count, one for each slave.

        A slave that moved to another IP keeps one entry: the id counts.
        """
        named = set(slaves)
        ids = {broker_id for broker_id, _ in named}
        self._seen = {
            slave: seen for slave, seen in self._seen.items() if now - seen < KEPT_SECONDS and slave[0] not in ids
        }
        self._seen.update(dict.fromkeys(named, now))
        return sorted(ip for _, ip in self._seen)


log = structlog.get_logger(__name__)

COALESCE_SECONDS = 0.01
CONNECTION_CHECK_SECONDS = 1.0
MEMBERS_SECONDS, MEMBERS_SECONDS_SOON, MEMBERS_SECONDS_MIN = 5.0, 0.5, 0.05
UNREGISTER_MS_MAX = 1_000
HOLD_SECONDS_MAX = 0.1  # Wait for a pending registration: producers may be waiting.
LATE_SECONDS_MAX = 5.0  # A new master registers twice within the first second.
LEAVE_SECONDS_MAX = 0.3
FIRST_ANSWER_SECONDS_MAX = 1.0  # So long a slave that starts may have no answer of its group, and then registers.


class RegistrationListener(Protocol):
    """GroupView: receives what name servers report, and says what a registration needs."""

    def master_changed(self, master: Master) -> None: ...
    def members_changed(self) -> None: ...
    def found_members(self, addresses: Mapping[int, str]) -> None: ...
    def has_unregistered_peers(self) -> bool: ...
    def may_be_replaced(self) -> bool: ...
    def is_surely_master(self) -> bool: ...


@define(kw_only=True, eq=False)
class RegistrationService:
    """Registers under the addresses and the id of `settings`."""

    settings: Settings
    client: RemotingClient
    topics: TopicConfigManager
    is_slave: bool
    listener: RegistrationListener
    registered: trio.Event = field(factory=trio.Event, init=False)  # With at least one name server.
    master: Master = field(default=Master(None, None), init=False)
    members: list[str] = field(factory=list, init=False)
    slave_addresses: set[str] = field(factory=set, init=False)  # By the last responses of name servers.
    _slaves: RegisteredSlaves = field(factory=RegisteredSlaves, init=False)
    _masters: dict[str, Master] = field(factory=dict, init=False)  # By name server.
    _leaders: dict[str, str | None] = field(factory=dict, init=False)  # Likewise: address of the registered master.
    _changes: dict[str, trio.Event] = field(init=False)  # By name server, for all of them, in order.
    _ask: Wakeup = field(factory=Wakeup, init=False)
    _failing: set[str] = field(factory=set, init=False)  # So that each failure is logged once.
    _first: dict[str, float] = field(factory=dict, init=False)  # Time of the first registration, by name server.
    _held: bool = field(default=False, init=False)
    _held_until: float = field(default=math.inf, init=False)
    _under_way: dict[str, trio.Event] = field(factory=dict, init=False)  # Registrations, by name server.
    _late: dict[str, float] = field(factory=dict, init=False)  # Pending after hold(): time until which they matter.

    @_changes.default
    def _one_each(self) -> dict[str, trio.Event]:
        return {address: trio.Event() for address in self.settings.config.name_servers}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for name_server in self._changes:
                nursery.start_soon(self._keep_registered, name_server)
            if self._changes:
                nursery.start_soon(self._watch_members)

    def topics_changed(self) -> None:
        """Register soon, once for several changes."""
        for change in self._changes.values():
            change.set()

    def ask_members(self) -> None:
        """Request the registered slaves soon."""
        self._ask.set()

    def set_role(self, broker_id: int, *, is_slave: bool) -> None:
        """Set the id and role to register with, held or not."""
        if self._held or (broker_id, is_slave) != (self.settings.config.broker_id, self.is_slave):
            self.settings.set_broker_id(broker_id)
            self.is_slave = is_slave
            self._masters.clear()
            self.master = Master(None, None)
            self.restart()

    async def hold(self) -> None:
        """Stop registering until restart(). Returns soon; a pending registration may still take effect at a name server."""
        await self._end_registrations(HOLD_SECONDS_MAX)
        self._late = dict.fromkeys(self._under_way, trio.current_time() + LATE_SECONDS_MAX)

    def wait_for_group(self) -> None:
        """Hold the first registration until restart(), for a moment at most: the group may refuse this member as a copy."""
        self._held, self._held_until = True, trio.current_time() + FIRST_ANSWER_SECONDS_MAX

    async def withdraw(self) -> None:
        """Stop registering until restart(), and unregister, as the group refuses this member: only where the entry is its own, as
        name servers remove the id, whoever has it.
        """
        await self._end_registrations(LEAVE_SECONDS_MAX)

        async def withdraw(name_server: str) -> None:
            try:
                if (await self._members_at(name_server)).get(self.settings.config.broker_id) == self.settings.address:
                    await self._unregister(name_server)
            except RemotingError as error:
                log.debug("unregistration failed", peer=name_server, error=str(error))

        await in_parallel(partial(withdraw, name_server) for name_server in self._changes)

    async def _end_registrations(self, seconds_max: float) -> None:
        self._held, self._held_until = True, math.inf
        with trio.move_on_after(seconds_max):
            for ended in list(self._under_way.values()):
                await ended.wait()

    def restart(self) -> None:
        """Register at once, and as often as after a start: a late registration of another member may replace this one."""
        self._held, self._held_until = False, math.inf
        self._first.clear()
        self.topics_changed()

    async def find_master(self) -> str | None:
        """Return the registered master, before this broker registers; None without one, or if no name server answers."""
        await self._ask_all()
        return next((leader for leader in self._leaders.values() if leader is not None), None)

    async def register_all(self) -> None:
        """Register with all name servers at once and wait for their responses; failures are logged and retried later."""
        await in_parallel(partial(self._register, name_server) for name_server in self._changes)

    async def leave(self) -> None:
        """Unregister from all name servers at a stop, and register no more. Those that do not respond notice the close.

        Name servers remove the id, so an id that may be another member's by now is not unregistered.
        """
        if self._held:
            return
        await self._end_registrations(LEAVE_SECONDS_MAX)  # A late one would register this broker again.
        await in_parallel(partial(self._unregister, name_server) for name_server in self._changes)

    async def _unregister(self, name_server: str) -> None:
        header = UnregisterBroker(
            broker_name=self.settings.config.broker_name,
            broker_addr=self.settings.address,
            cluster_name=self.settings.config.broker_cluster_name,
            broker_id=self.settings.config.broker_id,
        )
        try:
            await call(self.client, name_server, header, timeout_ms=UNREGISTER_MS_MAX)
        except RemotingError as error:
            log.debug("unregistration failed", peer=name_server, error=str(error))

    async def _keep_registered(self, name_server: str) -> None:
        failures = searches = 0
        while True:
            while self._held:
                with trio.move_on_at(self._held_until):
                    await self._changes[name_server].wait()
                    self._changes[name_server] = trio.Event()
                if trio.current_time() >= self._held_until:
                    self.restart()
            self._changes[name_server] = trio.Event()  # Later changes may miss this registration.
            failures = 0 if await self._register(name_server) else failures + 1
            now = trio.current_time()
            if not failures:
                self._first.setdefault(name_server, now)
            since_first = now - self._first.get(name_server, now)
            pause = next_pause(since_first, failures, self.settings.config.register_period_seconds)
            searches = searches + 1 if self.is_slave and self.master.address is None else 0
            if searches:  # The master may be starting, too: try often at first.
                pause = min(pause, next_pause(since_first, searches, pause))
            if await self._woken(name_server, pause):
                # At once, unless changes follow each other: a new consumer requests the route of its retry topic milliseconds
                # after its heartbeat has created it, and if that fails, only again at its second rebalance, 40 s later.
                await trio.sleep_until(now + COALESCE_SECONDS)

    async def _woken(self, name_server: str, pause: float) -> bool:
        """Wait for a change, `pause` seconds, or the loss of the connection; True for a change."""
        until = trio.current_time() + pause
        connected = name_server in self.client.addresses
        while trio.current_time() < until:
            with trio.move_on_at(min(until, trio.current_time() + CONNECTION_CHECK_SECONDS)):
                await self._changes[name_server].wait()
                return True
            if connected and name_server not in self.client.addresses:
                return False
        return False

    async def _register(self, name_server: str) -> bool:
        if self._held or await self._is_fenced_off(name_server) or await self._is_late_master(name_server):
            return False
        ended = self._under_way[name_server] = trio.Event()
        try:
            return await self._register_as_we_are(name_server)
        finally:
            ended.set()
            if self._under_way.get(name_server) is ended:
                del self._under_way[name_server]

    async def _is_fenced_off(self, name_server: str) -> bool:
        """True for a master without a lease, if another is registered: this one must not take its id and clients. It asks now, as
        it may have stood still since it heard last who is.
        """
        if not self.is_slave and self._leaders.get(name_server) is not None and self.listener.may_be_replaced():
            with suppress(RemotingError):
                self._leaders[name_server] = (await self._members_at(name_server)).get(MASTER_ID)
        leader = self._leaders.get(name_server)
        return not self.is_slave and leader not in (None, self.settings.address) and self.listener.may_be_replaced()

    async def _is_late_master(self, name_server: str) -> bool:
        """True when a late registration of this member has replaced the new master's at a name server.

        Registering with another id would remove it, and the group would have no master there until the new one registers again.
        Producers that request the route meanwhile would fail, while messages sent to this member are forwarded.
        """
        until = self._late.get(name_server)
        if until is None or not self.is_slave:
            return False
        try:
            leader = (await self._members_at(name_server)).get(MASTER_ID)
        except RemotingError:
            leader = None  # Registering will report what is wrong.
        if leader == self.settings.address and trio.current_time() < until:
            return True
        self._late.pop(name_server, None)
        return False

    async def _register_as_we_are(self, name_server: str) -> bool:
        body = registration_body(self.topics, self.settings.config.broker_permission)
        header = RegisterBroker(
            broker_name=self.settings.config.broker_name,
            broker_addr=self.settings.address,
            cluster_name=self.settings.config.broker_cluster_name,
            ha_server_addr=self.settings.ha_address,
            broker_id=self.settings.config.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        timeout_ms = self.settings.config.register_broker_timeout_ms
        try:
            answer = await call(self.client, name_server, header, body, timeout_ms=timeout_ms)
            self._take(name_server, answer)
        except (RemotingError, ValueError, AttributeError) as error:
            self._failed(name_server, "registration failed", error)
            return False
        self._failing.discard(name_server)
        if not self.registered.is_set():
            log.info("registered", peer=name_server, address=self.settings.address, ha_address=self.settings.ha_address)
        self.registered.set()
        return True

    def _take(self, name_server: str, answer: Response) -> None:
        response = answer.header(RegisterBrokerResponse)
        self._masters[name_server] = Master(response.master_addr or None, response.ha_server_addr or None)
        if self.is_slave:
            self._choose_master()
        elif answer.body:
            ordered = fastjson.loads(answer.body).get("table")
            if isinstance(ordered, dict):
                self.topics.set_order(ordered)

    def _choose_master(self) -> None:
        """Take the master of the first name server that reports one."""
        known = (self._masters.get(name_server) for name_server in self._changes)
        master = next((each for each in known if each and each.address), Master(None, None))
        if master != self.master:
            log.info("master changed", peer=master.address, ha_address=master.ha_address)
            self.master = master
            self.listener.master_changed(master)

    async def _watch_members(self) -> None:
        if not self._held:
            await self.registered.wait()
        while True:
            answers = await self._ask_all()
            members = self._slaves.answered(set().union(*answers), trio.current_time()) if answers else self.members
            if members != self.members:
                log.info("the registered slaves changed", before=self.members, now=members)
                self.members = members
                self.listener.members_changed()
            soon = self._held or self.listener.has_unregistered_peers()
            pause = MEMBERS_SECONDS_SOON if soon else MEMBERS_SECONDS
            with trio.move_on_after(pause):
                await self._ask.wait()
                await trio.sleep(MEMBERS_SECONDS_MIN)

    async def _ask_all(self) -> list[set[tuple[int, str]]]:
        answers: list[set[tuple[int, str]]] = []
        addresses: dict[int, str] = {}
        slaves: set[str] = set()

        async def ask(name_server: str) -> None:
            if name_server not in self.client.addresses:
                # This request opens a new connection, on which no broker is registered.
                self._changes[name_server].set()
            try:
                known = await self._members_at(name_server)
                self._leaders[name_server] = known.get(MASTER_ID)
                if not self.is_slave and not self._held and self._has_lost_id(known.get(MASTER_ID)):
                    self._changes[name_server].set()
                for broker_id, address in known.items():
                    if address != self.settings.address or broker_id not in addresses:  # Our id is another's.
                        addresses[broker_id] = address
                    if broker_id != MASTER_ID:
                        slaves.add(address)
                hosts = self.settings.hosts
                await hosts.renew(*known.values())
                answers.append(slaves_of(known, but=self.settings.config.broker_id, ip_of=hosts.ip_of))
            except RemotingError as error:
                self._failed(name_server, "the registered slaves could not be requested", error)

        await in_parallel(partial(ask, name_server) for name_server in self._changes)
        if answers:
            self.slave_addresses = slaves
            self.listener.found_members(addresses)
        return answers

    def _has_lost_id(self, leader: str | None) -> bool:
        """True if the member that was master before has registered with another id, and took this one's along; or as id 0 once
        more, as it stood still, and did not know yet.
        """
        return leader is None or (leader != self.settings.address and self.listener.is_surely_master())

    async def _members_at(self, name_server: str) -> dict[int, str]:
        """Return the remoting addresses of the group's members, by id. Raises RemotingError."""
        answer = await call(self.client, name_server, GetBrokerClusterInfo())
        return answer.json(partial(member_addresses, self.settings.config.broker_name))

    def _failed(self, name_server: str, what: str, error: Exception) -> None:
        if name_server not in self._failing:
            self._failing.add(name_server)
            log.warning(what, peer=name_server, error=str(error))

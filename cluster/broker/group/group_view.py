"""View of a broker's group: from its record where there is one, otherwise from name servers."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import attrs
import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.group.registration import Master, RegistrationService
from twinlog.cluster.broker.group.slave_sync import SlaveSynchronize
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.remoting.names import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, ip_of, shifted
from twinlog.ha.config import HAConfig
from twinlog.ha.election.epochs import confirmed_in
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, load_role

log = structlog.get_logger(__name__)


def saved_role(store_config: StoreConfig) -> RoleState | None:
    """Return the role that this member has saved in its store. Raises StoreDirectoryError."""
    return load_role(store_config.root.expanduser() / "twinlog")


def counted_as(member: GroupMember, ip_of: Callable[[str], str] = ip_of) -> str:
    """Name under which the HA connection of a member counts: its id, as it shows a ticket there; the IP of one that does not."""
    return member.id if member.codes else ip_of(member.ha_address)


def under_role(
    state: RoleState | None, config: BrokerConfig, store_config: StoreConfig, ha_config: HAConfig
) -> tuple[BrokerConfig, StoreConfig, HAConfig]:
    """Return the configuration for the role saved in the store, or else for the configured one. Raises ValueError."""
    if state is None:
        return config.for_role(store_config.broker_role), store_config, ha_config
    before = (store_config.broker_role.value, config.broker_id)
    if before != (state.role.value, state.broker_id):
        log.info("the store's role wins", kept_role=state.role.value, kept_id=state.broker_id, configured=before)
    return (
        attrs.evolve(config, broker_id=state.broker_id),
        attrs.evolve(store_config, broker_role=state.role),
        attrs.evolve(ha_config, master_address=""),  # The master may be another one by now.
    )


def is_replicated(state: RoleState | None) -> bool:
    """True when, by its saved record, all acknowledged messages of this group are on other twinlog members."""
    records = [record for record in (state.group, state.before) if record is not None] if state is not None else []
    return bool(records) and all(record.acks_needed > 1 and len(record.voters) > 1 for record in records)


class _Member(Protocol):
    @property
    def group(self) -> GroupRecord | None: ...
    @property
    def own(self) -> str: ...
    def role_state(self) -> RoleState | None: ...
    def heard(self, history: PeerHistory) -> None: ...


class _Voter(Protocol):
    @property
    def confirmed_here(self) -> int: ...


class _JoinRequests(Protocol):
    @property
    def pending(self) -> Mapping[str, GroupMember]: ...
    def registered(self, addresses: Mapping[int, str]) -> None: ...


class _RoleView(Protocol):
    """RoleService."""

    @property
    def member(self) -> _Member: ...
    @property
    def voter(self) -> _Voter: ...
    @property
    def joining(self) -> _JoinRequests: ...
    def known_addresses(self) -> Iterable[tuple[str, str]]: ...
    def counted_members(self) -> frozenset[str] | None: ...
    def acks_required(self) -> int | None: ...


@define(eq=False, repr=False)
class GroupView:
    """View for replication and a slave's services, computed at each call; and listener of registrations.

    The parts that know each other in a circle are set by wiring.py.
    """

    settings: Settings
    store: MessageStore
    ha: HAService = field(init=False)
    roles: _RoleView = field(init=False)
    registration: RegistrationService = field(init=False)
    slave_sync: SlaveSynchronize = field(init=False)
    role_master: Master | None = field(default=None, init=False)  # By this member's role; None: by name servers.

    def me(self) -> GroupMember:
        """This member at its present address; its id is in its store, see roles/member.py."""
        return GroupMember(
            address=self.settings.address,
            ha_address=self.settings.ha_address,
            broker_id=self.settings.config.broker_id,
            name=self.store.config.root.expanduser().name,
            member_address=self.settings.member_address
            if self.settings.member_address != self.settings.address
            else "",
        )

    @property
    def master(self) -> Master:
        """Master to follow, by the recorded roles, or without them by name servers."""
        return self.role_master or self.registration.master

    def ways_to(self, address: str) -> tuple[str, ...]:
        """Addresses at which a member is reached that clients are told to be at `address`, the best first: members are in
        another network than clients, maybe.
        """
        ways = self._ways_to(address)
        if ways == (address,) and (main := shifted(address, FAST_PORT_DISTANCE)):
            ways = tuple(shifted(way, -FAST_PORT_DISTANCE) for way in self._ways_to(main))
        return ways

    def _ways_to(self, address: str) -> tuple[str, ...]:
        told = [way for at, way in self.roles.known_addresses() if way and at == address]
        likely, master = list[str](), self.registration.master
        if not told and master.address == address and master.ha_address:  # A slave that knows no more yet.
            host = master.ha_address.rpartition(":")[0]
            likely = [shifted(master.ha_address, -HA_PORT_DISTANCE), f"{host}:{address.rpartition(':')[2]}"]
        return tuple(dict.fromkeys((*told, address, *likely)))

    def other_members(self) -> tuple[GroupMember, ...]:
        """Return the other members in the group's record."""
        group, own = self.roles.member.group, self.roles.member.own
        return tuple(each for each in (group.members if group is not None else ()) if each.id != own)

    def slave_addresses(self) -> set[str]:
        """Return the remoting addresses of the registered slaves and of the other members in the group's record."""
        group = self.roles.member.group
        others = {each.address for each in group.members} if group is not None else set()
        return (self.registration.slave_addresses | others) - {self.settings.address, self.master.address}

    def behind_ha_ip(self, ip: str) -> set[str]:
        """Return the remoting addresses of other members whose HA address, maybe in another network, has this IP."""
        group = self.roles.member.group
        members = group.members if group is not None else ()
        return {each.address for each in members if ip in self.settings.hosts.ips_of(each.ha_address)} - {
            self.settings.address
        }

    def counted_slaves(self) -> list[str]:
        """Return the slaves whose acknowledgements count, see counted_as(): those in the group's record, or else the IPs of the
        registered ones.
        """
        counted, group = self.roles.counted_members(), self.roles.member.group
        if counted is None or group is None or self.store.config.is_slave:
            return self.registration.members
        others = counted - {self.roles.member.own}
        return sorted(counted_as(each, self.settings.hosts.ip_of) for each in group.members if each.id in others)

    def acks_required(self) -> int | None:
        """Return the number of members that must hold a message, by the in-sync set in etcd; None: inSyncReplicas says so."""
        return self.roles.acks_required()

    def admitted_slaves(self) -> list[str]:
        """Return the IPs of the slaves that may follow, and so join: registered, and in haMembers if that is set. And the ids of
        members that are about to join.
        """
        named = self.settings.ha_config.named_members
        ips = {ip for address in named for ip in self.settings.hosts.ips_of(address)}
        joining = (each for each in self.roles.joining.pending.values() if each.codes)
        joining_ids = [each.id for each in joining if not named or not named.isdisjoint((each.id, each.address))]
        return [*(ip for ip in self.registration.members if not named or ip in ips), *joining_ids]

    def epoch_followed(self) -> int | None:
        """Return the number of the epoch whose master is followed; None without a record."""
        state = self.roles.member.role_state()
        return state.promised.epoch if state is not None else None

    def confirmed_offset(self) -> int:
        """Return the confirmed offset: in a SYNC_MASTER's log the end of what enough slaves hold."""
        end = self.store.max_offset
        if self.store.config.broker_role is not BrokerRole.SYNC_MASTER:
            return end
        confirmed = confirmed_in(self.ha.role.epochs(), self.ha.group_transfer.confirmed_offset, end)
        assert confirmed <= end, (confirmed, end)
        return confirmed

    def confirmed_for_consumers(self) -> int:
        """Return the confirmed offset for consumers: on a slave what its master said of this log, or without a record its end."""
        if not self.store.config.is_slave:
            return self.confirmed_offset()
        has_role = self.roles.member.role_state() is not None
        return self.roles.voter.confirmed_here if has_role else self.store.max_offset

    def stalled(self, why: str) -> None:
        """Give up the lease, on the watchdog's thread. A master without a group record has none."""
        if self.roles.member.group is not None:
            self.ha.lease.give_up(why)

    # RegistrationListener

    def master_changed(self, master: Master) -> None:
        """Follow the master that name servers report, unless this member's role determines it."""
        if self.role_master is not None:
            return
        if master.ha_address and not self.settings.ha_config.master_address:
            self.ha.set_master(master.ha_address)
        self.slave_sync.set_master(master.address if master.address != self.settings.address else None)

    def members_changed(self) -> None:
        """Count other slaves from now on."""
        self.ha.members_changed(self.counted_slaves())

    def hosts_changed(self) -> None:
        """Count slaves by the IPs that their names have now."""
        self.members_changed()
        self.registration.ask_members()

    def has_unregistered_peers(self) -> bool:
        """True while a slave that is not registered yet has a pending HA connection."""
        return self.ha.connection_admission.has_unregistered

    def found_members(self, addresses: Mapping[int, str]) -> None:
        """Add RocketMQ's slaves to the group's record."""
        self.roles.joining.registered(addresses)

    def is_surely_master(self) -> bool:
        """True while other members' answers let this master serve, so that nobody else may: its lease ends without them."""
        return 0 < self.ha.lease.remaining(trio.current_time()) < math.inf

    def may_be_replaced(self) -> bool:
        """True when this master's lease is over: another one may have been elected."""
        return not self.ha.lease.held(trio.current_time())

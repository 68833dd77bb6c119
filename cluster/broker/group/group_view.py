"""What a broker knows of its group, out of the record where there is one, and else from name servers."""

from typing import TYPE_CHECKING

import attrs
import structlog
from attrs import define

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.remoting.names import ip_of
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig
from twinlog.store.role_file import GroupMember, RoleState, load_role

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts

log = structlog.get_logger(__name__)


def saved_role(config: BrokerConfig, store_config: StoreConfig) -> RoleState | None:
    """The role that this member has saved in its store. Raises StoreDirectoryError."""
    side = store_config.root.expanduser() / "twinlog"
    address = f"{config.broker_ip1}:{config.listen_port}"
    state = load_role(side, address)
    if state is None and (other := load_role(side)) is not None:
        log.warning(
            "this directory is a copy of another member's, or this one has another address now: it is a new member",
            was=other.address,
            address=address,
        )
    return state


def under_role(
    state: RoleState | None, config: BrokerConfig, store_config: StoreConfig, ha_config: HAConfig
) -> tuple[BrokerConfig, StoreConfig, HAConfig]:
    """The configuration under the role that the store has saved, or else under its own. Raises ValueError."""
    if state is None:
        return config.for_role(store_config.broker_role), store_config, ha_config
    before = (store_config.broker_role.value, config.broker_id)
    if before != (state.role.value, state.broker_id):
        log.info("the store's role wins", kept_role=state.role.value, kept_id=state.broker_id, configured=before)
    return (
        attrs.evolve(config, broker_id=state.broker_id),
        attrs.evolve(store_config, broker_role=state.role),
        attrs.evolve(ha_config, master_address=""),  # It may be another one by now.
    )


def is_replicated(state: RoleState | None) -> bool:
    """Whether nothing is acknowledged in this member's group that other members of ours do not hold, by its saved record."""
    records = [record for record in (state.group, state.before) if record is not None] if state is not None else []
    return bool(records) and all(record.acks_needed > 1 and len(record.voters) > 1 for record in records)


@define(eq=False)
class GroupView:
    """Answers for replication and for a slave's services; everything is looked up anew each time."""

    broker: "BrokerParts"

    def me(self) -> GroupMember:
        """This member, as it is known in its group."""
        broker = self.broker
        return GroupMember(
            address=broker.address,
            ha_address=broker.ha_address,
            broker_id=broker.config.broker_id,
            name=broker.store_config.root.expanduser().name,
        )

    def slave_addresses(self) -> set[str]:
        """The remoting addresses of the slaves that are registered, and of the others in the group's record."""
        broker, group = self.broker, self.broker.roles.member.group
        others = {each.address for each in group.members} if group is not None else set()
        return (broker.registration.slave_addresses | others) - {broker.address, broker.master.address}

    def behind_ha_ip(self, ip: str) -> set[str]:
        """The remoting addresses of other members whose HA address has this IP: it may be of another network."""
        group = self.broker.roles.member.group
        members = group.members if group is not None else ()
        return {each.address for each in members if ip_of(each.ha_address) == ip} - {self.broker.address}

    def counted_slaves(self) -> list[str]:
        """The IPs of the slaves whose acknowledgements count: those in the group's record, or else the registered ones."""
        broker = self.broker
        counted, group = broker.roles.counted_members(), broker.roles.member.group
        if counted is None or group is None or broker.is_slave:
            return broker.registration.members
        return sorted(ip_of(each.ha_address) for each in group.members if each.address in counted - {broker.address})

    def welcome_slaves(self) -> list[str]:
        """The IPs of the registered slaves, whatever the record says: who follows joins. Only whom haMembers names."""
        named = {ip_of(address) for address in self.broker.ha_config.named_members}
        return [ip for ip in self.broker.registration.members if not named or ip in named]

    def epoch_followed(self) -> int | None:
        """The number of the epoch whose master is followed; None without a record."""
        state = self.broker.roles.member.role_state()
        return state.promised.epoch if state is not None else None

    def confirmed_for_consumers(self) -> int:
        """How far the log is as safe as promised. On a slave: as its master said last; without a record nobody says it."""
        broker = self.broker
        if not broker.is_slave:
            return broker.confirmed_offset()
        return (
            broker.roles.voter.confirmed_offset
            if broker.roles.member.role_state() is not None
            else broker.store.max_offset
        )

    def stalled(self, why: str) -> None:
        """On the watchdog's thread. A master that nobody can replace needs no lease."""
        if self.broker.roles.member.group is not None:
            self.broker.ha.lease.give_up(why)

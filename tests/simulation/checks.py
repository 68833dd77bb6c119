"""What must hold: at each acknowledgement, at each cut, every half second, and when all is well again.

What SEND_OK promises, by configuration (the level of plan.Config); each message is checked when its producer hears it:
    L0          the master's log has the message. A kill keeps it, a power cut may take it, and then all behind it, too
    ..+flush    the master's disk has it, name and content: no power cut takes it
    L2          as many members as inSyncReplicas says have it, the master included, each slave counted once
    L3          and each of those slaves has it on its disk
A member that has something keeps it: over a kill everything, over a power cut what it said was flushed (Member._note_claim).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from tests.simulation.ledger import Holder, Message, Violation, common
from tests.simulation.plan import SLAVES
from twinlog.store.record.scan import DispatchEntry, scan_records

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.world import World

SILENCE_SECONDS = 21.0  # haHousekeepingInterval and a little.
STALL_SECONDS = 40.0  # A slave that gets nothing for so long, with nothing in the way, must say why.
REASONS = {"ahead", "diverged", "below min", "resyncing", "failed", "stalled"}  # States that explain an unequal log.


# At each acknowledgement


def acknowledgement(world: "World", message: Message) -> None:
    """The producer may be told. Raises Violation."""
    config, master = world.plan.config, world.members["m"]
    if message.life != len(world.ledger.history.lives) - 1:
        raise Violation(f"message {message.number} is acknowledged, but the master lost it")
    if config.sync_flush and master.durable_end < message.end:
        assert master.store is not None
        master.prove_durable(master.store)
        if master.durable_end < message.end:
            raise Violation(
                f"message {message.number} up to {message.end} is acknowledged as flushed, but on the master's disk is "
                f"{master.durable_end}"
            )
    if not config.synchronous:
        return
    holders = [name for name in SLAVES if _held(world, name) >= message.end]
    if 1 + len(holders) < config.need:
        held = {name: _held(world, name) for name in SLAVES}
        raise Violation(
            f"message {message.number} up to {message.end} is acknowledged for {config.need} members at level "
            f"{config.level}, but the slaves have {held}"
        )


def _held(world: "World", name: str) -> int:
    holder = world.holder(name)
    return holder.durable if world.plan.config.ack_flushed else holder.held


# At each start


def damaged(member: "Member") -> list[tuple[int, int]]:
    """The ranges of its log that a member calls damaged."""
    return list(member.store.damaged) if member.store is not None else []


def damage(member: "Member", found: list[tuple[int, int]]) -> None:
    """What was flushed is not damaged by a power cut. Raises Violation."""
    new = [each for each in found if each not in member.known_damage]
    member.known_damage |= set(new)
    if new and new[0][0] < member.flushed_claim:
        raise Violation(f"{member.name} calls {new[0]} damaged; up to {member.flushed_claim} all was flushed")


# At each cut


def truncation(world: "World", slave: "Member", offset: int) -> None:
    """A slave gives up what differs from its master's log, and no more; or all, where it is of no use. Raises Violation."""
    if not world.plan.config.auto_resync:
        raise Violation(f"{slave.name} cuts its log at {offset} although nobody allowed that")
    store, master = slave.store, world.members["m"].store
    if store is None or master is None or offset <= store.min_offset:
        return
    start = store.min_offset
    data = slave.read_log(store, start, store.max_offset)
    shared = start + common(data, world.ledger.history.now, start)
    first_bad = max(
        (entry.phy_offset for entry in _entries(slave, start, data) if entry.phy_offset <= shared), default=start
    )
    if offset < first_bad:
        raise Violation(f"{slave.name} cuts its log at {offset}, but up to {first_bad} it is its master's")


def _entries(member: "Member", at: int, data: bytes) -> list[DispatchEntry]:
    return list(scan_records(data, at, member.config.file_size, check_crc=True).entries)


# When a slave begins


def beginning(world: "World", holder: Holder, offset: int) -> None:
    """An empty slave gets all that its master has. Raises Violation."""
    master = world.members["m"].store
    if not holder.end and master is not None and offset > master.min_offset:
        raise Violation(f"{holder.name} begins at {offset}; its master has all from {master.min_offset} on")


# When somebody is dropped


def silence(world: "World", event: Mapping[str, Any]) -> None:
    """Only who is silent is called silent. Raises Violation."""
    master = world.members["m"]
    address = str(event.get("slave") or event.get("master") or "")
    ips = {slave.ip for slave in map(world.members.get, SLAVES) if slave is not None}
    ip = address.rpartition(":")[0]
    for slave in (world.members[name] for name in SLAVES):
        if ip in ips and slave.ip != ip:
            continue
        quiet = max(
            world.network.clear_since(slave.ip, master.ip), slave.changed_at, master.changed_at, slave.slow_until,
            master.slow_until,
        )  # fmt: skip
        if ip in (slave.ip, master.ip) and trio.current_time() - quiet > SILENCE_SECONDS and slave.up and master.up:
            raise Violation(f"{address} is called silent, but nothing is in the way: {event.get('why')}")


# Now and then


def nature(world: "World", slave: "Member") -> str:
    """What is the matter with a slave's log, in truth."""
    holder = world.holder(slave.name)
    if any(low <= holder.end < high for low, high in damaged(world.members["m"])):
        return "the master's log is damaged there"
    if holder.tainted:
        return "a flipped bit came in"
    return "its bytes are the master's" if holder.is_of_present else "its bytes are others"


@define(eq=False)
class Watch:
    """Looks at everything every half second."""

    world: "World"
    _confirmed: int = 0
    _voices: tuple[str, ...] = ()
    _progress: dict[str, tuple[float, int]] = field(factory=dict)  # When nothing was in the way any more; log end then.

    def look(self) -> None:
        """Raises Violation."""
        self._look_at_confirmed()
        for name in SLAVES:
            self._look_for_stall(self.world.members[name])

    def _look_at_confirmed(self) -> None:
        world, master = self.world, self.world.members["m"]
        if not world.plan.config.synchronous or master.ha is None or not master.up:
            self._confirmed, self._voices = 0, ()
            return
        transfer = master.ha.group_transfer
        confirmed = transfer.confirmed_offset
        voices = tuple(slave.address for slave in transfer.slaves if slave.counted)
        if voices == self._voices and confirmed < self._confirmed:
            raise Violation(f"the confirmed offset fell from {self._confirmed} to {confirmed} while {voices} lived")
        truth = sorted((_held(world, name) for name in SLAVES), reverse=True)
        if confirmed > truth[world.plan.config.need - 2]:
            raise Violation(f"the confirmed offset is {confirmed}, but the slaves have {truth}")
        self._confirmed, self._voices = confirmed, voices

    def _look_for_stall(self, slave: "Member") -> None:
        world, master = self.world, self.world.members["m"]
        now, end = trio.current_time(), world.holder(slave.name).end
        master_end = len(world.ledger.history.now)
        clear = (
            slave.up
            and master.up
            and world.network.is_clear(slave.ip, master.ip)
            and slave.ha is not None
            and slave.ha.client.master_address == master.address
            and master.slow_until < now
            and slave.slow_until < now
            and world.name_server.up
        )
        since, before = self._progress.get(slave.name, (now, -1))
        if not clear or end != before or end == master_end:
            self._progress[slave.name] = (now, end)
            return
        if now - since > STALL_SECONDS:
            assert slave.ha is not None
            state = slave.ha.client.statistics()
            if state.state not in REASONS or not (state.last_error or getattr(state, "finding", None)):
                raise Violation(
                    f"{slave.name} has stood at {end} of {master_end} for {now - since:.0f} s, {nature(world, slave)}, and says "
                    f"{state.state}, {state.last_error}"
                )

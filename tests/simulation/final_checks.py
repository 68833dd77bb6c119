"""What must hold when all is well again: all members are the same, or say why not, and all that was promised is there."""

from typing import TYPE_CHECKING

from tests.simulation.checks import damaged, nature
from tests.simulation.ledger import Violation
from tests.simulation.plan import SLAVES
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.scan import scan_records

if TYPE_CHECKING:
    from tests.simulation.ledger import Message
    from tests.simulation.member import Member
    from tests.simulation.role_ledger import RoleMessage
    from tests.simulation.roles import RoleMember
    from tests.simulation.world import World


def unequal(world: "World") -> list[str]:
    """The slaves whose log is not the master's."""
    found = []
    now = world.ledger.history.now
    for name in SLAVES:
        holder = world.holder(name)
        if (
            not world.members[name].up
            or holder.end != len(now)
            or (now and not holder.is_of_present and not _overlaps(world, world.members[name]))
        ):
            found.append(name)
    return found


def _overlaps(world: "World", slave: "Member") -> bool:
    """Whether what both logs still have is the same."""
    master = world.members["m"]
    if slave.store is None or master.store is None:
        return False
    start = max(slave.store.min_offset, master.store.min_offset)
    data = slave.read_log(slave.store, start, slave.store.max_offset)
    return data == world.ledger.history.now[start : start + len(data)]


def settled(world: "World") -> bool:
    """Whether all live, with queues that are level with their logs."""
    return all(
        member.up and member.store is not None and member.store.dispatched_offset == member.store.max_offset
        for member in world.members.values()
    )


def explained(world: "World") -> bool:
    """Whether all that are not the same say why."""
    try:
        for name in unequal(world):
            _check_reason(world, world.members[name])
    except Violation:
        return False
    return True


def final(world: "World") -> None:
    """All members are the same, or say truthfully why not; all that was promised is there. Raises Violation."""
    for member in world.members.values():
        if not member.up or member.store is None:
            raise Violation(f"{member.name} is down after everything healed")
        if member.holder is None or not member.holder.tainted:  # A flipped bit may name another queue.
            check_queues(member)
    for name in unequal(world):
        _check_reason(world, world.members[name])
    _check_answers(world)
    _check_readable(world)


def _check_reason(world: "World", slave: "Member") -> None:
    if slave.ha is None:
        raise Violation(f"{slave.name} is down")
    holder, now = world.holder(slave.name), world.ledger.history.now
    state = slave.ha.client.statistics()
    master_store = world.members["m"].store
    assert master_store is not None
    differs = holder.end > len(now) or not holder.is_of_present
    below = bool(holder.end) and holder.end < master_store.min_offset
    # Nobody gets past what the master lost in the middle of its log, and who has that sees that the master has not.
    hurt = any(low <= holder.end for low, _ in damaged(world.members["m"]))
    truths = {"ahead": differs, "diverged": differs or hurt, "below min": below, "stalled": hurt}
    if not truths.get(state.state, False):
        raise Violation(
            f"{slave.name} ends at {holder.end}, the master has {master_store.min_offset}..{len(now)}, "
            f"{nature(world, slave)}, and says {state.state}, {state.last_error}"
        )
    nothing_shared = state.finding is not None and state.finding.offset == max(holder.start, master_store.min_offset)
    # What was repaired came in damaged again: it leaves that to people.
    again = holder.tainted and world.network.flipped > 1
    if world.plan.config.auto_resync and not (hurt or nothing_shared or again):
        raise Violation(f"{slave.name} was to repair itself, but says {state.state}, {state.last_error}")


def _check_answers(world: "World") -> None:
    """Whoever waits longer than any limit will never be answered."""
    master = world.members["m"]
    for message in world.ledger.messages:
        if len(message.answers) > 1:
            raise Violation(f"message {message.number} was answered {message.answers}")
    transfer = master.ha.group_transfer if master.ha is not None else None
    if transfer is not None and transfer.waiting:
        raise Violation(f"{transfer.waiting} messages still wait for an answer")


def _check_readable(world: "World") -> None:
    """What was acknowledged and never lost can be read where it was said to be, on every member that is the same."""
    for member in world.members.values():
        store = member.store
        assert store is not None
        if member.holder is not None and (member.name in unequal(world) or not member.holder.is_of_present):
            continue  # Or a bit had flipped in what its master has deleted since.
        for message in world.ledger.messages:
            if not message.acked or message.life < 0 or message.phy_offset < store.min_offset:
                continue
            if store.damaged.overlaps(message.phy_offset, message.end):
                continue
            check_place(member, message)


def check_place(member: "Member | RoleMember", message: "Message | RoleMessage") -> None:
    """A message is where its producer was told, in the log and in its queue."""
    store = member.store
    assert store is not None
    record = store.message_at(message.phy_offset)
    if record is None or message.body not in bytes(record):
        raise Violation(
            f"{member.name} has no message {message.number} at {message.phy_offset}, which was acknowledged"
        )
    topic, queue_id, number = message.queue
    unit = store.queue(topic, queue_id).unit(number)
    if unit is None or unit.phy_offset != message.phy_offset:
        raise Violation(f"{member.name}: message {message.number} is not in its queue {message.queue}, but {unit}")


def check_queues(member: "Member") -> None:
    """Queues are what a rebuild from the log would make of it, and every record is sound."""
    store = member.store
    assert store is not None
    log: CommitLog = store.commit_log
    ends: dict[tuple[str, int], int] = {}
    begins = [log.min_offset, *(high for _, high in damaged(member))]
    stops = [*(low for low, _ in damaged(member)), log.max_offset]
    for at, stop in zip(begins, stops, strict=True):
        scan = scan_records(member.read_log(store, at, stop), at, log.file_size, check_crc=True)
        if scan.consumed < stop - at:
            raise Violation(
                f"{member.name}: no record at {at + scan.consumed} of its log: {scan.error}, needs {scan.needed}"
            )
        for entry in scan.entries:
            unit = store.queue(entry.topic, entry.queue_id).unit(entry.queue_offset)
            if unit is None or (unit.phy_offset, unit.size) != (entry.phy_offset, entry.size):
                raise Violation(
                    f"{member.name}: {entry.topic}-{entry.queue_id} says {unit} for the record at {entry.phy_offset}"
                )
            ends[entry.topic, entry.queue_id] = entry.queue_offset + 1
    for (topic, queue_id), end in ends.items():
        if store.queue(topic, queue_id).max_offset != end and not damaged(member):  # Lost messages keep their numbers.
            found = store.queue(topic, queue_id).max_offset
            raise Violation(f"{member.name}: {topic}-{queue_id} ends at {found}, its records at {end}")

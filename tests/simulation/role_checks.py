"""What must hold where roles change. A member's own word counts for nothing: what it promised, and where its log comes from, is
read from what a power cut would leave of its disk.

    I1  only the winner of an epoch writes in it, while his durable promise is that epoch; nobody goes on in it who lost a tail
    I2  a promise that is told, a lease that is answered and an entry that others take up are on the disk before
    I3  a slave takes bytes only in the epoch that it has promised, with that epoch as the last of its durable history
    I4  a log is always a beginning of what the winner of its last epoch had or wrote: it is cut before the history is adopted
    I5  who wins without force has every message that was acknowledged; two winners of one number do not both acknowledge
    I6  no slave cuts what was acknowledged, unless it says before that it is not whole
    I7  who is fenced acknowledges nothing, and stores nothing
    I8  a copy of a member's disk, or an older state of it, takes no bytes, follows nobody, is no master, and nobody wins an epoch
        with its vote, where the group knows a later start
"""

from typing import TYPE_CHECKING

from tests.simulation.ledger import Violation
from tests.simulation.role_ledger import Line, RoleMessage
from twinlog.ha.election.epochs import effective
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember
    from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest


def needed_acks(member: "RoleMember") -> int:
    """How many members hold what this master acknowledges."""
    state = member.durable_role()
    if state is not None and state.group is not None:
        return state.group.acks_needed
    return member.config.need if member.config.synchronous else 1


def own_epoch(member: "RoleMember", does: str) -> EpochId:
    """The epoch in which a member is master, by its disk. Raises Violation when it is in none (I1)."""
    state, last = member.durable_role(), member.durable_epochs()[-1]
    if state is None:
        if member.name != "m" or last != FIRST:
            raise Violation(f"I1: {member.name} {does}, but nothing on its disk says that it is master")
        return FIRST.id
    if state.promised != last.id or last.winner not in (member.identity, FIRST.winner):
        raise Violation(f"I1: {member.name} {does} in {_named(last.id)}, but has promised {_named(state.promised)}")
    if last.winner == FIRST.winner and member.name != "m":
        raise Violation(f"I1: {member.name} {does} in epoch 0, which is not its own")
    if state.role is BrokerRole.SLAVE:
        raise Violation(f"I1: {member.name} {does} in {_named(last.id)}, but its role on the disk is a slave's")
    return last.id


def _named(epoch_id: EpochId) -> str:
    return f"epoch {epoch_id.epoch} of {epoch_id.winner or 'the first master'}"


# At each start


def finish_line(member: "RoleMember", start: int, data: bytes) -> None:
    """A master that died while it wrote may find more in its log than it ever told anybody."""
    last = member.durable_epochs()[-1]
    line = member.group.book.lines.of(last.id)
    if line is None or last.winner not in (member.identity, FIRST.winner) or (last == FIRST and member.name != "m"):
        return
    known = len(line.data) - start
    if 0 <= known < len(data) and data[:known] == line.data[start:]:
        line.data.extend(data[known:])


def lost_before_record(member: "RoleMember", end: int) -> bool:
    """Whether the first master came back with less than others may hold, and no history tells theirs from what it writes."""
    state, line = member.durable_role(), member.group.book.lines.of(FIRST.id)
    begins = state is None or state.group is None or state.group.loss_free_from is None
    return member.name == "m" and begins and line is not None and end < len(line.data)


# At each append


def takes_over(member: "RoleMember") -> None:
    """A member is about to let producers in. Raises Violation."""
    line = member.group.book.lines.of(own_epoch(member, "takes over"))
    if line is not None and member.log.end < len(line.data):
        goes_on(member, line, member.log.end)


def no_copy_takes_part(member: "RoleMember") -> None:
    """It is no copy itself, and has won without one. Raises Violation."""
    world, change = member.group, member.service._change
    if member not in world.role_members:
        raise Violation(f"I8: {member.name}, a copy, is to be master")
    answers = change.survey.answers.values() if change is not None and change.is_running else ()
    if any(each.granted and world.copy_codes.intersection(each.codes) for each in answers):
        raise Violation(f"I8: {member.name} has won by the vote of a copy")


def wrote(member: "RoleMember", offset: int, data: bytes) -> None:
    """A master put messages. Raises Violation."""
    world = member.group
    if member.is_fenced:
        raise Violation(f"I7: {member.name} is fenced, and stores messages")
    epoch_id = own_epoch(member, "writes")
    line = world.book.lines.of(epoch_id)
    if line is None:
        raise Violation(f"I1: {member.name} writes in {_named(epoch_id)}, of which nobody has seen the beginning")
    if offset != len(line.data):
        line = goes_on(member, line, offset)
    line.data.extend(data)


def may_lose(member: "RoleMember", kind: str) -> str:
    """Why an epoch may begin without something that was acknowledged; "" when it must have all."""
    if kind == "restart" and needed_acks(member) == 1 and not member.config.sync_flush:
        return "only its master had them"
    return "forced" if kind == "forced" else ""


def goes_on(member: "RoleMember", line: Line, offset: int) -> Line:
    """A master came back with less and goes on: only where it is in no group, else in a new epoch. Raises Violation."""
    world, state = member.group, member.durable_role()
    if state is not None and state.group is not None:
        raise Violation(f"I1: {member.name} lost bytes {offset} to {len(line.data)} of {line} and writes in it again")
    if offset > len(line.data):
        raise Violation(f"{member.name} writes at {offset}, but {line} ended at {len(line.data)}")
    again = world.begin_line(
        line.id, line, offset, may_lose="" if member.config.sync_flush else "only its master had them"
    )
    again.start = line.start
    return again


def took(member: "RoleMember") -> None:
    """A slave appended its master's bytes. Raises Violation."""
    state, last = member.durable_role(), member.durable_epochs()[-1]
    if state is not None and state.promised != last.id:
        raise Violation(
            f"I3: {member.name} takes bytes of {_named(last.id)}, but has promised {_named(state.promised)}"
        )
    if not member.log.is_of(last.id):
        raise Violation(f"I4: {member.name} takes bytes that are not those of {_named(last.id)}, the last it knows of")


def adopted(member: "RoleMember", entries: tuple[EpochEntry, ...]) -> None:
    """It is about to open its stream. Raises Violation."""
    last = member.durable_epochs()[-1]
    if last.id != entries[-1].id:
        raise Violation(f"I4: {member.name} connects to {_named(entries[-1].id)}; on its disk is {_named(last.id)}")
    for each in member.group.role_members:  # The winner has told of its epoch, and is about to serve.
        member.group.saw_entry(each)
    fits_list(member)


def fits_list(member: "RoleMember") -> None:
    """Its log is a beginning of the log of the winner of its last epoch. Raises Violation."""
    if member.durable_role() is None:
        return
    last = effective(member.durable_epochs(), member.log.end)[-1]
    if member.log.end and not member.log.is_of(last.id):
        raise Violation(
            f"I4: the log of {member.name} from {member.log.start} to {member.log.end} is not that of {_named(last.id)}, "
            f"the last that it knows of"
        )


# At each answer to another member


def promised(member: "RoleMember", ask: "VoteRequest", answer: "VoteReply") -> None:
    """The answer leaves. Raises Violation."""
    state = member.durable_role()
    if answer.granted and not ask.dry_run and (state is None or state.promised < (ask.epoch, ask.candidate)):
        found = _named(state.promised) if state is not None else "nothing"
        raise Violation(f"I2: {member.name} promises epoch {ask.epoch} to {ask.candidate}; on its disk is {found}")


def leased(member: "RoleMember", ask: "LeaseRequest", answer: "LeaseReply") -> None:
    """The same for a lease."""
    state = member.durable_role()
    if answer.accepted and member not in member.group.role_members and not getattr(member, "follows", False):
        raise Violation(f"I8: {member.name}, a copy, follows {_named(ask.id)}")
    if answer.accepted and member.group.copy_codes.intersection(ask.codes):
        raise Violation(f"I8: {member.name} renews the lease of a copy, in {_named(ask.id)}")
    if answer.accepted and (state is None or state.promised.epoch < ask.id.epoch):
        found = _named(state.promised) if state is not None else "nothing"
        raise Violation(f"I2: {member.name} follows {_named(ask.id)}; on its disk is {found}")


# At each acknowledgement


def acknowledged(member: "RoleMember", message: RoleMessage) -> None:
    """A producer hears that its message is safe. Raises Violation."""
    config, book = member.config, member.group.book
    epoch_id = message.line.id
    if member.is_fenced:
        raise Violation(f"I7: {member.name} is fenced, and acknowledges message {message.number}")
    if own_epoch(member, f"acknowledges message {message.number}") != epoch_id:
        raise Violation(f"{member.name} acknowledges message {message.number} of {message.line}, an older epoch")
    if book.lines.of(epoch_id) is not message.line:
        raise Violation(f"{member.name} acknowledges message {message.number} of {message.line}, which it lost")
    if config.sync_flush and member.durable_end < message.end:
        assert member.store is not None
        member.prove_durable(member.store)
        if member.durable_end < message.end:
            raise Violation(
                f"message {message.number} is acknowledged as flushed, but is not on the disk of {member.name}"
            )
    need, in_etcd = needed_acks(member), member.group.in_etcd
    if need < 2:
        return
    holders = holding(member, message.line, message.end)
    if in_etcd.governs(member):
        in_etcd.acknowledged(member, message)
    elif 1 + len(holders) < need:
        raise Violation(
            f"message {message.number} up to {message.end} is acknowledged for {need} members, held by "
            f"{member.name} and {holders}"
        )
    other = book.ackers.setdefault(epoch_id.epoch, member.name)
    if other != member.name and message.line.id.winner:
        raise Violation(f"I5: {other} and {member.name} both acknowledge messages in epoch {epoch_id.epoch}")


def holding(master: "RoleMember", line: Line, end: int) -> list[str]:
    """Who else held a line up to an offset, once."""
    others = [member.durable_role() for member in master.group.role_members if member is not master]
    copies, found = dict[str, "RoleMember"](), list[str]()
    for state in others:  # A copy that only the master has heard of counts for nothing.
        copies |= master.group.taken_for(state.group if state is not None else None)
    for member in master.group.role_members:
        either = (member, copies.get(member.name))
        if member is not master and any(each is not None and _holds(each, line, end) for each in either):
            found.append(member.name)
    return found


def _holds(member: "RoleMember", line: Line, end: int) -> bool:
    table = member.log.durable if member.config.ack_flushed else member.log.held
    return table.get(line, 0) >= end


# At each cut


def cut(member: "RoleMember", offset: int) -> None:
    """It gives up what lies behind. Raises Violation."""
    state = member.durable_role()
    log = member.log
    lost = [
        each
        for each in member.group.book.waiting
        if each.end > offset and log.start <= each.phy_offset and _has(log, each)
    ]
    if lost and state is not None and state.whole:
        raise Violation(
            f"I6: {member.name} cuts its log at {offset}, with {len(lost)} acknowledged messages from {lost[0].phy_offset} on, "
            f"and calls itself whole"
        )


def _has(log: object, message: RoleMessage) -> bool:
    return log.has(message.line, message.phy_offset, message.end)  # type: ignore[attr-defined, no-any-return]


# Every half second


def look(world: "RoleWorld") -> None:
    """Raises Violation."""
    for member in world.role_members:
        if not member.up or member.ha is None:
            continue
        state = member.durable_role()
        before = world.promises.get(member.name)
        if state is not None:
            if before is not None and state.promised < before:
                raise Violation(f"I2: {member.name} had promised {_named(before)}, now it is {_named(state.promised)}")
            world.promises[member.name] = state.promised
        if member.writable and state is not None:
            own_epoch(member, "is open to producers")
            _look_at_confirmed(world, member)


def _look_at_confirmed(world: "RoleWorld", member: "RoleMember") -> None:
    line, need = world.book.lines.of(member.durable_epochs()[-1].id), needed_acks(member)
    if line is None or need < 2 or member.ha is None:
        return
    confirmed = member.ha.group_transfer.confirmed_offset
    if world.in_etcd.governs(member):
        world.in_etcd.confirmed(member, line, confirmed)
    elif 1 + len(holding(member, line, confirmed)) < need:
        held = {each.name: each.log.held.get(line, 0) for each in world.role_members}
        raise Violation(f"{member.name} calls {confirmed} of {line} confirmed, but held is {held}")

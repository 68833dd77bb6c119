"""When all is well again an operator makes a member master, if none is, and lets the others follow. Then all are equal."""

from typing import TYPE_CHECKING

import trio

from tests.simulation import operators
from tests.simulation.final_checks import check_place, check_queues
from tests.simulation.ledger import Violation
from twinlog.ha.election.election import AUTOMATIC
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.election.votes import judge_failover, without_records

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

ALONE_SECONDS = 45.0  # So long everybody finds his way by himself,
HELP_SECONDS = 20.0  # and then an operator helps, again and again.
HEAL_SECONDS = 240.0
PATIENCE_SECONDS = 180.0  # As long as a hold-off, and the longest pause between two attempts, may last.
ATTEMPT = "the last attempt failed"


async def settle(world: "RoleWorld") -> None:
    """Wait until all members are the same; help where nothing moves."""
    began, helped, since = trio.current_time(), trio.current_time() + ALONE_SECONDS - HELP_SECONDS, 0.0
    while trio.current_time() < began + HEAL_SECONDS:
        await trio.sleep(1)
        if unequal(world) or world.in_etcd.missing():
            since = trio.current_time()
        elif trio.current_time() > since + 3:
            return
        if trio.current_time() > helped + HELP_SECONDS and not _is_patient(world, began):
            helped = trio.current_time()
            await _check_elects(world)
            await help_on(world)


def _is_patient(world: "RoleWorld", began: float) -> bool:
    """Whether somebody is about to elect by itself, and says when."""
    now = trio.current_time()
    if now > began + PATIENCE_SECONDS or _is_decided(world):
        return False
    electors = [member.roles.elector for member in world.role_members if member.roles is not None]
    return any(each.facts().held_off_until > now or each.decision.why.startswith(ATTEMPT) for each in electors)


def _is_decided(world: "RoleWorld") -> bool:
    masters = serving(world)
    return len(masters) == 1 and not _is_promised_to_others(world, masters[0])


async def _check_elects(world: "RoleWorld") -> None:
    """E2: in a group that elects by itself no person is needed where anybody could be elected, or the master be it anew."""
    groups = [state.group for member in world.role_members if (state := member.durable_role()) is not None]
    may = _is_decided(world) or len(groups) < len(world.role_members) or world.lost_before_record or _displaced(world)
    if may or any(group is None or group.auto_failover not in AUTOMATIC or group.acks_needed <= 1 for group in groups):
        return
    services = [member.roles for member in world.role_members if member.roles is not None and member.up]
    if any(service.member.paused() or service.rules.is_refused for service in services):
        return
    for service in services:
        own, epoch = service.member, max(each.member.promised().epoch for each in services) + 1
        ask = VoteRequest(epoch=epoch, candidate=own.own, dry_run=True, codes=own.me().codes)
        found = [each for each in services if own.address_of(each.member.own) == each.member.address]
        answers = {each.member.own: await each.voter.vote(ask) for each in found}  # Who moved unheard of is not asked.
        group, in_force = own.group, world.in_etcd.record
        if in_force is not None:
            group, answers = in_force, without_records(answers)
        if judge_failover(group, own.own, answers, None).may:
            says = "; ".join(f"{member.name} {member.says()}, {_decided(member)}" for member in world.role_members)
            world.violated(f"E2: {own.address} could be elected, and nobody is: {says}")
            return


def _decided(member: "RoleMember") -> str:
    return str(member.roles.elector.decision) if member.roles is not None else ""


def serving(world: "RoleWorld") -> "list[RoleMember]":
    """Who takes messages."""
    return [member for member in world.role_members if member.up and member.writable]


async def help_on(world: "RoleWorld") -> None:
    """As a person would, who reads what the members say."""
    masters = serving(world)
    if len(masters) != 1 or _is_promised_to_others(world, masters[0]):
        knowing = [
            member for member in world.role_members if (state := member.durable_role()) and state.group is not None
        ]
        best = max(masters or knowing or world.role_members, key=lambda member: member.key)
        world.trace(f"{[member.name for member in masters]} are master: {best.name} is to be")
        await operators.start(world, best, "failover" if best.asked < 2 else "forced failover")
        best.asked += 1
        return
    for name in unequal(world):
        member = world.member(name)
        if member not in masters and member.has_what_its_master_lost():
            world.trace(f"{name} is to be master: {member.says()}")
            await operators.take_over(world, member, masters[0])
            return
        elif member not in masters and member.asked >= 2 and "empty its store directory" in member.says():
            world.trace(f"{name} is to begin anew: {member.says()}")
            member.wipe = True
            member.stop(1.0)
        elif member not in masters:
            verb = "rewind" if member.asked < 1 else "reinit"
            world.trace(f"{name} is to {verb}: {member.says()}")
            _check_help(world, member)
            await operators.repair(world, member, verb)
            member.asked += 1


def _is_promised_to_others(world: "RoleWorld", master: "RoleMember") -> bool:
    """Whether somebody has promised a number as high to another: two may win one number, and nobody takes a promise back."""
    own = master.durable_epochs()[-1].id
    states = [member.durable_role() for member in world.role_members]
    return any(state is not None and state.promised != own and state.promised.epoch >= own.epoch for state in states)


def _check_help(world: "RoleWorld", member: "RoleMember") -> None:
    """Histories prove what is given up: no slave needs a person to follow. Two that were wiped do: neither knows its promises."""
    wiped = [
        each for each in world.role_members if each.roles is not None and each.roles.member.wiped_record is not None
    ]
    is_damaged = any(each.store is not None and list(each.store.damaged) for each in world.role_members)
    is_deleted = "were deleted there" in member.says()  # Retention made room before it came back.
    needs_a_person = len(wiped) > 1 or is_damaged or is_deleted or world.lost_before_record or _displaced(world)
    if not needs_a_person:
        world.violated(f"{member.name} was to follow by itself: {member.says()}")


def _displaced(world: "RoleWorld") -> set[str]:
    """Members in whose place a record names a copy, which its master took for them: they wait for a person."""
    states = [member.durable_role() for member in world.role_members]
    return {name for state in states if state is not None for name in world.taken_for(state.group)}


def unequal(world: "RoleWorld") -> list[str]:
    """Who is not what the one master is; the names of all when there is none, or more than one."""
    masters = serving(world)
    if len(masters) != 1 or not all(_is_settled(member) for member in world.role_members):
        return [member.name for member in world.role_members if len(masters) != 1 or not _is_settled(member)]
    (master,) = masters
    return [member.name for member in world.role_members if member is not master and not _same(member, master)]


def _is_settled(member: "RoleMember") -> bool:
    store = member.store
    return member.up and store is not None and store.dispatched_offset == store.max_offset


def _same(member: "RoleMember", master: "RoleMember") -> bool:
    store, other = member.store, master.store
    assert store is not None
    assert other is not None
    if store.max_offset != other.max_offset:
        return False
    start = max(store.min_offset, other.min_offset)
    return member.read_log(store, start, store.max_offset) == master.read_log(other, start, other.max_offset)


def final(world: "RoleWorld") -> None:
    """Raises Violation."""
    for member in world.role_members:
        if not member.up or member.store is None:
            raise Violation(f"{member.name} is down after everything healed")
    found = unequal(world)
    if found and (world.lost_before_record or _displaced(world)):
        return  # A person has to say whose log is right.
    if found and all(_is_lost_to_all(world.member(name), serving(world)) for name in found):
        return  # No member has the next record any more: a person has to say what becomes of those behind it.
    if found:
        words = "; ".join(f"{member.name} {member.says()}" for member in world.role_members)
        masters = [member.name for member in serving(world)]
        raise Violation(f"{found} are not the same after everything healed, master is {masters}: {words}")
    if missing := sorted(set(world.in_etcd.missing()) - _displaced(world)):
        raise Violation(f"S7: {missing} are not in the in-sync set after everything healed: {_why_missing(world)}")
    for member in world.role_members:
        check_queues(member)
        _check_readable(world, member)
    for message in world.book.messages:
        if len(message.answers) > 1:
            raise Violation(f"message {message.number} was answered {message.answers}")


def _is_lost_to_all(member: "RoleMember", masters: "list[RoleMember]") -> bool:
    """True if a slave has all up to where its master's log is damaged, without saying that its own is sound there."""
    stores = [each.store for each in masters if each.store is not None]
    ends = {begin for store in stores for begin, _ in store.damaged}
    return member.store is not None and member.store.max_offset in ends and not member.has_what_its_master_lost()


def _why_missing(world: "RoleWorld") -> str:
    outside = [master.service.outside for master in serving(world)]
    return "; ".join(f"{each.set_change.why} {each.why}" for each in outside)


def _check_readable(world: "RoleWorld", member: "RoleMember") -> None:
    """What was acknowledged and never given up can be read where it was said to be."""
    store = member.store
    assert store is not None
    for message in world.book.waiting:
        if message.phy_offset < store.min_offset or store.damaged.overlaps(message.phy_offset, message.end):
            continue
        check_place(member, message)

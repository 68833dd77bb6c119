"""A group of members with logs of a few letters, for checking who may be elected: every answer comes from the real cores.

Between any two steps anything else may happen: answers are old when they are used, members crash and lose tails, masters are cut
off and do not know it. Asserted at each step: I1, one writer; I3, who acknowledges holds a beginning of its master's log; I5, who
is elected without loss has every acknowledged byte, and no cut takes one.
"""

import random
from collections.abc import Iterator

from attrs import evolve, field, frozen

from tests.ha.voters import named
from twinlog.ha.election.epochs import compare_histories, confirmed_in, key_of, with_entry
from twinlog.ha.election.group_record import (
    counted,
    id_as_slave,
    in_force,
    is_committed,
    is_first,
    loss_free_below,
    with_ids_swapped,
    with_member,
    won_at,
)
from twinlog.ha.election.voter import (
    LeaseRequest,
    VoteReply,
    VoteRequest,
    decide_lease,
    decide_vote,
    followed,
    is_master,
)
from twinlog.ha.election.votes import group_of, judge_failover, may_take
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

Letter = tuple[EpochId, int]  # Who wrote it, and the number of the write.
Acked = tuple[int, Letter, int]  # Place, what, and the epoch whose master said so.
Op = tuple[str, ...]


@frozen(kw_only=True, cache_hash=True)
class Node:
    """A member. What a crash takes: `serving`, `master`, `asking`."""

    state: RoleState
    entries: tuple[EpochEntry, ...] = (FIRST,)
    log: tuple[Letter, ...] = ()
    serving: bool = False
    master: str = ""  # Who sends to it.
    asking: tuple[int, tuple[VoteReply, ...]] | None = None  # For an epoch, with what was granted.
    lost_tail: bool = False  # Never writes again in the epoch it had.

    @property
    def id(self) -> EpochId:
        return self.entries[-1].id


@frozen(kw_only=True)
class World:
    """All of them, and what people were told."""

    nodes: dict[str, Node] = field(hash=False)
    reports: frozenset[tuple[EpochId, str, int]] = frozenset()
    versions: frozenset[tuple[EpochId, str, int]] = frozenset()  # Of the record, that a master heard of.
    acked: frozenset[Acked] = frozenset()
    forgiven: frozenset[Acked] = frozenset()  # Somebody accepted that they may be lost.
    places: frozenset[tuple[EpochId, int]] = frozenset()  # That were ever written, by epoch.
    forced_epoch: int = -1
    writes: int = 0
    commands: int = 0
    crashes: int = 0

    def key(self) -> object:
        return (
            tuple(self.nodes.items()),
            self.reports,
            self.acked,
            self.forgiven,
            self.places,
            self.writes,
            self.commands,
        )

    def put(self, address: str, node: Node, **more: object) -> "World":
        return evolve(self, nodes={**self.nodes, address: node}, **more)


def world(size: int, acks_needed: int, *, joins: bool = False, begins: bool = False) -> World:
    """`size` members, of which the first is master; the last one is none yet if it `joins`.

    If it `begins`, the master has just written the first record, of itself and the second one, and all that follow it count.
    """
    names = "abcd"[:size]
    members = tuple(
        GroupMember(address=name, ha_address=name, broker_id=number, name=name) for number, name in enumerate(names)
    )
    group = GroupRecord(
        version=1 if begins else 2,
        members=members[: 2 if begins else size - joins],
        acks_needed=acks_needed,
        master_role=BrokerRole.SYNC_MASTER,
        loss_free_from=None if begins else 0,
    )
    nodes = {}
    for number, name in enumerate(names):
        role = BrokerRole.SLAVE if number else BrokerRole.SYNC_MASTER
        known = group if group.member(name) is not None and not (begins and number) else None
        state = RoleState(role=role, broker_id=number, promised=FIRST.id, group=known)
        nodes[name] = Node(state=state, serving=not number)
    return World(nodes=nodes)


@frozen(kw_only=True)
class Limits:
    """How much happens, so that it comes to an end."""

    writes: int = 2
    commands: int = 2
    crashes: int = 0
    forced: bool = False


def steps(now: World, limits: Limits) -> Iterator[Op]:
    """What may happen next."""
    for one, node in now.nodes.items():
        if node.serving and now.writes < limits.writes:
            yield "write", one
        group = node.state.group
        if node.serving and _stranger(now, node) is not None and node.state.before is None:
            if group is not None and is_first(group):
                yield "tail", one, _stranger(now, node) or ""
            else:
                yield "add", one
        if now.commands < limits.commands:
            yield "ask", one, "next"
            yield "ask", one, "highest"
        if node.asking is not None:
            yield "take", one, ""
            yield "take", one, "half"
            if limits.forced:
                yield "take", one, "forced"
        if node.id == node.state.promised and node.id.winner == one and not node.serving and not node.lost_tail:
            yield "again", one
        if now.crashes < limits.crashes:
            yield "kill", one
            if node.log:
                yield "power", one
        for other in now.nodes:
            if other != one and node.serving:
                yield "follow", one, other
                yield "follow", one, other, "half"
                if node.state.before is not None:
                    yield "follow", one, other, "lease"  # The record is taken, and nothing else.
                yield "send", one, other
            if other != one and node.asking is not None:
                yield "promise", one, other


def step(now: World, op: Op) -> World | None:
    """What is then; None when nothing changed. Asserts what must hold."""
    name, one, *rest = op
    return _STEPS[name](now, one, *rest)


def _write(now: World, one: str) -> World:
    node = now.nodes[one]
    assert is_master(node.state, node.entries), "I1: a writer without its promise"
    place = (node.id, len(node.log))
    assert place not in now.places, "I1: two writes at one place of an epoch"
    letter = (node.id, now.writes)
    node = evolve(node, log=(*node.log, letter))
    return _count(now.put(one, node, writes=now.writes + 1, places=now.places | {place}), one)


def _stranger(now: World, node: Node) -> str | None:
    group = node.state.group
    return next((name for name in now.nodes if group is not None and group.member(name) is None), None)


def _add(now: World, one: str) -> World:
    """A master hears of a slave that is not in its record yet."""
    node = now.nodes[one]
    name = _stranger(now, node)
    assert name is not None
    assert node.state.group is not None
    member = GroupMember(address=name, ha_address=name, broker_id=id_as_slave(node.state.group, name), name=name)
    state = evolve(node.state, group=with_member(node.state.group, member), before=node.state.group)
    return now.put(one, evolve(node, state=state))


def _tail(now: World, one: str, other: str) -> World | None:
    """A slave of the old kind, or one that is not counted in yet, takes a byte before there is a record that holds."""
    log, node = now.nodes[one].log, now.nodes[other]
    if len(node.log) >= len(log) or log[: len(node.log)] != node.log or node.state.promised != FIRST.id:
        return None
    node = evolve(node, log=(*node.log, log[len(node.log)]))
    return _count(now.put(other, node, reports=now.reports | {(FIRST.id, other, len(node.log))}), one)


def _heard(now: World, one: str, other: str, version: int) -> World:
    """What a voter has of the master's record; it is in force once enough have it."""
    node = now.nodes[one]
    now = evolve(now, versions=now.versions | {(node.id, other, version)})
    group, before = node.state.group, node.state.before
    assert group is not None
    known = {address: at for epoch, address, at in sorted(now.versions) if epoch == node.id} | {one: group.version}
    if (before is not None or is_first(group)) and is_committed(before, known, group):
        state = evolve(node.state, before=None, group=loss_free_below(in_force(group), len(node.log)))
        now = now.put(one, evolve(node, state=state))
    return now


def _count(now: World, one: str) -> World:
    """Tell people what enough members have said that they hold."""
    node = now.nodes[one]
    state = node.state
    assert state.group is not None
    there = counted(state.before, state.group, committed=state.before is None)
    if is_first(state.group):
        there = frozenset(now.nodes)
    ends = {}
    for epoch, address, end in now.reports:
        if epoch == node.id and address in there and confirmed_in(node.entries, end, len(node.log)):
            ends[address] = max(end, ends.get(address, 0))
    acked = {
        (place, letter, node.id.epoch)
        for place, letter in enumerate(node.log)
        if 1 + sum(end > place for end in ends.values()) >= state.group.acks_needed
    }
    at_risk = acked - now.acked if node.id.epoch <= now.forced_epoch else set()
    return evolve(now, acked=now.acked | acked, forgiven=now.forgiven | at_risk)


def _follow(now: World, one: str, other: str, crash: str = "") -> World | None:
    master, node = now.nodes[one], now.nodes[other]
    assert master.state.group is not None
    ask = LeaseRequest(
        id=master.id,
        address=one,
        ha_address=one,
        entries=master.entries,
        max_offset=len(master.log),
        confirmed_offset=0,
        group=master.state.group,
        boot_ms=0,
    )
    state, answer = decide_lease(node.state, ask, node.entries, len(node.log), 0, other)
    if not answer.accepted or master.state.group.member(other) is None:
        return None
    if crash == "lease":
        now = now.put(other, _crashed(evolve(node, state=state or node.state)))
        return _heard(now, one, other, answer.group_version)
    node = evolve(node, state=state or node.state)
    if state is not None and state.promised != now.nodes[other].state.promised:
        node = evolve(node, serving=False, asking=None, master="")
    found = compare_histories(node.entries, len(node.log), master.entries, len(master.log))
    assert found.kind in ("same", "behind", "given up"), found
    if found.kind == "given up":
        assert found.cut_offset is not None
        assert found.cut_offset < len(node.log)
        cut = set(enumerate(node.log[found.cut_offset :], found.cut_offset))
        kept = {(place, letter) for place, letter, epoch in now.acked - now.forgiven if epoch <= master.id.epoch}
        assert not cut & kept, f"an acknowledged byte is cut: {found}"
        node = evolve(node, log=node.log[: found.cut_offset])
    if crash:
        return now.put(other, _crashed(node))
    assert master.log[: len(node.log)] == node.log, f"I3: no beginning of its master's log: {found}"
    state = followed(node.state, master.id, master.state.group, other)
    node = evolve(node, state=state, entries=master.entries, master=one, lost_tail=False)
    return _reported(_heard(now, one, other, answer.group_version), one, other, node)


def _reported(now: World, one: str, other: str, node: Node) -> World:
    if len(node.log) >= len(now.nodes[one].log):
        node = evolve(node, state=evolve(node.state, whole=True))
    reports = now.reports | {(node.state.promised, other, len(node.log))}
    return _count(now.put(other, node, reports=reports), one)


def _send(now: World, one: str, other: str) -> World | None:
    master, node = now.nodes[one], now.nodes[other]
    if node.master != one or node.state.promised != master.id or len(node.log) >= len(master.log):
        return None
    assert master.log[: len(node.log)] == node.log
    return _reported(now, one, other, evolve(node, log=(*node.log, master.log[len(node.log)])))


def _ask(now: World, one: str, how: str) -> World:
    known = now.nodes.values() if how == "highest" else [now.nodes[one]]
    epoch = max(node.state.promised.epoch for node in known) + 1
    granted = _granted(now, one, VoteRequest(epoch=epoch, candidate=one))
    assert granted is not None
    node, answer = granted
    return now.put(one, evolve(node, asking=(epoch, (answer,))), commands=now.commands + 1)


def _granted(now: World, address: str, ask: VoteRequest) -> tuple[Node, VoteReply] | None:
    node = now.nodes[address]
    state, answer = decide_vote(node.state, node.entries, 0, len(node.log), None, ask, named(address))
    if not answer.granted:
        assert state is None
        return None
    if state is not None:
        node = evolve(node, state=state, serving=False, master="", asking=None)
    return node, answer


def _promise(now: World, one: str, other: str) -> World | None:
    node = now.nodes[one]
    assert node.asking is not None
    epoch, answers = node.asking
    if other in {answer.address for answer in answers}:
        return None
    granted = _granted(now, other, VoteRequest(epoch=epoch, candidate=one))
    if granted is None:
        return None
    now = now.put(other, granted[0])
    return now.put(one, evolve(node, asking=(epoch, tuple(sorted((*answers, granted[1]), key=lambda a: a.address)))))


def _take(now: World, one: str, how: str) -> World | None:
    node = now.nodes[one]
    assert node.asking is not None
    epoch, known = node.asking
    assert node.state.promised == EpochId(epoch, one)
    answers = {answer.address: answer for answer in known}
    judgement, group = may_take(node.state.group, one, answers, None), group_of(node.state.group, answers)
    kind: str = "failover"
    if how == "forced":
        if judgement.may:
            return None
        judgement, kind = judge_failover(node.state.group, one, answers, "unknown"), "forced"
    if not judgement.may:
        return None
    missing = {part for part in now.acked if part[2] < epoch and node.log[part[0] : part[0] + 1] != (part[1],)}
    if how == "forced":
        at_risk = {part for part in now.acked if part[2] <= epoch}
        now = evolve(now, forgiven=now.forgiven | missing | at_risk, forced_epoch=max(epoch, now.forced_epoch))
    else:
        assert group is not None
        assert not missing - now.forgiven, "I5: the winner lacks an acknowledged byte"
        assert all(
            key_of(node.entries, len(node.log)) >= key_of(answer.entries, answer.max_offset)
            for answer in known
            if answer.whole and answer.address in group.voters
        )
    node = evolve(node, state=evolve(node.state, group=group_of(node.state.group, answers)))
    entry = EpochEntry(epoch=epoch, winner=one, start_offset=len(node.log), kind=kind)  # type: ignore[arg-type]
    node = evolve(node, entries=with_entry(node.entries, entry), asking=None, lost_tail=False)
    if how == "half":
        return now.put(one, _crashed(node))
    return _serve(now.put(one, node), one)


def _serve(now: World, one: str) -> World:
    node = now.nodes[one]
    if node.state.role is BrokerRole.SLAVE:
        assert node.state.group is not None
        record = won_at(with_ids_swapped(node.state.group, one, node.id.epoch), node.entries[-1].start_offset)
        node = evolve(node, state=evolve(node.state, before=node.state.group, group=record))
    state = evolve(node.state, role=BrokerRole.SYNC_MASTER, broker_id=0, whole=True)
    return _count(now.put(one, evolve(node, state=state, serving=True, master="")), one)


def _crashed(node: Node) -> Node:
    return evolve(node, serving=False, master="", asking=None)


def _kill(now: World, one: str) -> World:
    """And it comes back: what it was is on its disk."""
    node = _crashed(now.nodes[one])
    serving = is_master(node.state, node.entries) and not node.lost_tail
    return now.put(one, evolve(node, serving=serving), crashes=now.crashes + 1)


def _power(now: World, one: str) -> World:
    node = _crashed(now.nodes[one])
    state = evolve(node.state, whole=False)
    return now.put(one, evolve(node, state=state, log=node.log[:-1], lost_tail=True), crashes=now.crashes + 1)


_STEPS = {
    "add": _add,
    "tail": _tail,
    "write": _write,
    "follow": _follow,
    "send": _send,
    "ask": _ask,
    "promise": _promise,
    "take": _take,
    "again": _serve,
    "kill": _kill,
    "power": _power,
}
_WEIGHTS = {
    "add": 3,
    "tail": 4,
    "write": 3,
    "ask": 1,
    "take": 4,
    "promise": 6,
    "follow": 5,
    "send": 6,
    "again": 1,
    "kill": 1,
    "power": 1,
}


def explore(size: int, acks_needed: int, limits: Limits, *, begins: bool = False) -> int:
    """Everything that can happen, in every order; how many worlds there are."""
    start = world(size, acks_needed, begins=begins)
    seen, waiting = {start.key()}, [start]
    while waiting:
        now = waiting.pop()
        for op in steps(now, limits):
            after = step(now, op)
            if after is not None and after.key() not in seen:
                seen.add(after.key())
                waiting.append(after)
    return len(seen)


def walk(seed: int, size: int, acks_needed: int, limits: Limits, *, joins: bool = False, begins: bool = False) -> World:
    """One of the things that can happen, a hundred steps long."""
    chance, now = random.Random(seed), world(size, acks_needed, joins=joins, begins=begins)
    for _ in range(100):
        choices: dict[str, list[Op]] = {}
        for op in steps(now, limits):
            choices.setdefault(op[0], []).append(op)
        if not choices:
            break
        (name,) = chance.choices(list(choices), [_WEIGHTS[name] for name in choices])
        now = step(now, chance.choice(choices[name])) or now
    return now

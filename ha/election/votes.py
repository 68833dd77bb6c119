"""Judges candidates: whether one may become master, and what would be lost. No I/O.

A set of `needed` votes intersects every set of members that can acknowledge a message. So of those that voted, and still have all
that they ever acknowledged, the one with the greatest key has everything: it becomes master without loss. With too few votes, or
another's key, the possible loss is named, and an operator decides on it.
"""

from collections.abc import Mapping
from typing import Literal

from attrs import evolve, frozen

from twinlog.ha.election.epochs import common_end
from twinlog.ha.election.group_record import members_of_all, needed, newest, unproven
from twinlog.ha.election.in_sync_set import is_last_copy
from twinlog.ha.election.voter import VoteReply, why_older
from twinlog.store.role_file import GroupRecord

Accepted = int | Literal["unknown"] | None


@frozen
class LostRange:
    """Bytes of the log that would be given up. `end` None: unknown, because too few answered."""

    first: int
    end: int | None
    holders: tuple[str, ...]  # Ids of members that have them, or may have them.


@frozen
class Judgement:
    """Result for one candidate: it may become master, or the rule that forbids it. Texts name members by their addresses."""

    candidate: str  # Its id.
    may: bool
    rule: str = ""
    needed: str = ""
    actual: str = ""
    fix: str = ""
    lost: LostRange | None = None
    forced: bool = False  # It may, and something may be lost that somebody accepted.


@frozen(kw_only=True)
class SwitchoverFacts:
    """Facts about a candidate of a switchover and its master."""

    master: str  # Its id.
    master_address: str
    master_answers: bool
    following: bool  # The candidate has a stream from this master.
    lag_bytes: int
    lag_max: int  # Within this it catches up before clients notice.
    differs_at: int | None = None  # The first byte in which the two logs differ.
    no_room: str = ""  # Why it could not store messages.


def group_of(group: GroupRecord | None, answers: Mapping[str, VoteReply]) -> GroupRecord | None:
    """The newest record of all answers."""
    return newest(group, *(answer.group for answer in answers.values()))


def without_records(answers: Mapping[str, VoteReply]) -> dict[str, VoteReply]:
    """The answers where etcd's record counts: a member's own copy may be older, or not in force."""
    return {id: evolve(answer, group=None) for id, answer in answers.items()}


def judge_failover(
    group: GroupRecord | None, candidate: str, answers: Mapping[str, VoteReply], accept: Accepted
) -> Judgement:
    """`answers`, the candidate's own too, by member: to a dry run, or to requests for votes.

    A master that may have lost bytes itself does not count, but may win: what others kept says whether it lost any.
    """
    group = group_of(group, answers)
    if (refusal := _not_eligible(group, candidate, answers)) is not None:
        return refusal
    assert group is not None
    own, votes = answers[candidate], _counting_votes(group, answers)
    better = [answer for answer in votes if answer.key > own.key]
    if is_alone(group, candidate):
        refusal = _last_copy(group, own, answers)
    else:
        refusal = _outside_set(group, candidate) or _too_few(group, candidate, answers, votes)
        refusal = refusal or _outdone(candidate, own, better)
    lost = _lost(group, own, answers, enough=len(votes) >= needed(group))
    if (unsure := _unsure(group, own, votes)) is not None:
        refusal, lost = refusal or unsure, _lost_besides(group, own, lost)
    if refusal is None:
        return Judgement(candidate, may=True)
    if _accepts(accept, lost):
        return evolve(refusal, may=True, lost=lost, forced=True)
    return evolve(refusal, lost=lost)


def judge_switchover(
    group: GroupRecord | None, candidate: str, answers: Mapping[str, VoteReply], facts: SwitchoverFacts
) -> Judgement:
    """Judge a candidate where nothing may be lost: a refused one cannot be forced, either."""
    group = group_of(group, answers)
    if (refusal := _not_eligible(group, candidate, answers)) is not None:
        return refusal
    assert group is not None
    own, votes = answers[candidate], _counting_votes(group, answers)
    enough = None if group.acks_needed <= 1 else _too_few(group, candidate, answers, votes)
    better = [answer for answer in votes if answer.member != facts.master and answer.key > own.key]
    refusal = (
        _switchover_rules(candidate, own, facts)
        or _outside_set(group, candidate)
        or _unheard_of(group, candidate)
        or enough
        or _outdone(candidate, own, [answer for answer in better if answer.last.id != own.last.id])
    )
    return refusal or Judgement(candidate, may=True)


def may_take(
    group: GroupRecord | None,
    candidate: str,
    answers: Mapping[str, VoteReply],
    resigned: str | None,
    accept: Accepted = None,
) -> Judgement:
    """Judge by given votes. `resigned`: the master that gave its own with the end of its log where it was expected.

    Where a master alone acknowledges (one of `acks_needed`), its resignation is enough, when nobody knows of a newer epoch.
    """
    known, own = group_of(group, answers), answers.get(candidate)
    master = answers.get(resigned) if resigned is not None else None
    if known is not None and known.acks_needed <= 1 and own is not None and master is not None:
        caught_up = (own.last.id, own.max_offset) == (master.last.id, master.max_offset)
        newest_of = max(answer.entries[-1].epoch for answer in answers.values())
        if own.granted and master.granted and caught_up and newest_of == own.last.epoch:
            return Judgement(candidate, may=True)
    return judge_failover(group, candidate, answers, accept)


def _counting_votes(group: GroupRecord, answers: Mapping[str, VoteReply]) -> list[VoteReply]:
    """Votes of members that have all that they ever acknowledged, and of no copy of them."""
    electors = group.voters & group.electors
    votes = (answer for id, answer in answers.items() if id in electors and answer.granted and answer.whole)
    return [answer for answer in votes if not why_older(group, answer.member, answer.codes)]


def _not_eligible(group: GroupRecord | None, candidate: str, answers: Mapping[str, VoteReply]) -> Judgement | None:
    """Rules that cannot be overridden by accepting a loss."""
    member = group.member(candidate) if group is not None else None
    if group is None:
        why = ("knows the group's members", "a record of the group", "none", "start a member that has one")
    elif member is None:
        why = (
            "is a member",
            f"to be one of {len(group.members)} members",
            "it is none",
            "let it follow the master first",
        )
    elif group.before is not None and candidate not in members_of_all(None, group):
        why = (
            "is a member",
            "a record that is in force",
            "it is only joining",
            "wait until the master has counted it in",
        )
    elif not member.votes:
        why = ("votes", "a member that can vote", "a RocketMQ slave", "choose another member")
    elif candidate not in answers:
        why = ("answers", "an answer", "none", f"start {member.address}")
    elif not answers[candidate].granted:
        actual = answers[candidate].why
        why = ("may still vote for itself", "its own vote", actual, "run the command again")
    else:
        return None
    return Judgement(candidate, False, *why)


def _too_few(
    group: GroupRecord, candidate: str, answers: Mapping[str, VoteReply], votes: list[VoteReply]
) -> Judgement | None:
    if len(votes) >= needed(group):
        return None
    electors = group.voters & group.electors
    silent = sorted(map(group.address_of, electors - set(answers)))
    refused = sorted(a.address for a in answers.values() if a.member in electors and a not in votes)
    parts = [f"{', '.join(silent)} silent"] * bool(silent) + [f"{', '.join(refused)} cannot"] * bool(refused)
    return Judgement(
        candidate,
        False,
        "enough votes",
        f"{needed(group)} of {len(group.electors)} members" + (" in the in-sync set" if group.is_in_etcd else ""),
        f"{len(votes)}" + (f" ({', '.join(parts)})" if parts else ""),
        f"start {silent[0]}, or accept the loss" if silent else "accept the loss",
    )


def is_alone(group: GroupRecord, candidate: str) -> bool:
    """True if this member alone acknowledges, by the record in etcd: nobody else need have what it lacks."""
    return is_last_copy(group) and candidate in group.electors


def _last_copy(group: GroupRecord, own: VoteReply, answers: Mapping[str, VoteReply]) -> Judgement | None:
    """Refusal of the only member of the in-sync set, where others show, or could show, that it lost bytes.

    Only it was to write in its epoch: a longer log of it, even outside of the set, is what it lost.
    """
    longer = [answer for answer in answers.values() if answer.key > own.key]
    silent = sorted(map(group.address_of, group.voters - answers.keys()))
    if longer or (silent and not own.whole):
        best = max(longer, key=lambda answer: answer.key, default=None)
        found = f"{best.address} has epoch {best.last.epoch} up to {best.max_offset}" if best is not None else ""
        return Judgement(
            own.member,
            False,
            "has all that it alone acknowledged",
            "a log that lost nothing, or that none of the others exceeds",
            found or f"it may have lost some, and {', '.join(silent)} does not answer",
            f"start {silent[0]}, or accept the loss" if silent else "accept the loss, here or at the other",
        )
    return None


def _outdone(candidate: str, own: VoteReply, better: list[VoteReply]) -> Judgement | None:
    if not better:
        return None
    best = max(better, key=lambda answer: answer.key)
    return Judgement(
        candidate,
        False,
        "holds the newest bytes",
        f"epoch {best.last.epoch} up to {best.max_offset}, as {best.address} has",
        f"epoch {own.last.epoch} up to {own.max_offset}",
        f"choose {best.address}",
    )


def _unsure(group: GroupRecord, own: VoteReply, votes: list[VoteReply]) -> Judgement | None:
    """Reason why its log may lack acknowledged bytes, however many voted."""
    base, its_master = group.loss_free_from, _master_of(group)
    master = group.address_of(its_master)
    if (refusal := _unheard_of(group, own.member)) is not None:
        return refusal
    if not own.whole and own.member != its_master:  # It may be no prefix of what the master wrote.
        why = (
            "has all that it acknowledged",
            "a log that lost nothing",
            "it may have lost some, and has not caught up since",
            "choose a member that is whole, or accept the loss",
        )
    elif base is None and its_master not in {answer.member for answer in votes}:
        why = (
            "has what others than members acknowledged",
            f"the vote of {master}: the record does not say yet from where on only members' acknowledgements count",
            f"epoch {own.last.epoch} up to {own.max_offset}, without {master}",
            f"start {master}, or accept the loss",
        )
    elif base is not None and own.max_offset < base:
        why = (
            "has what others than members acknowledged",
            f"bytes up to {base}, where only members' acknowledgements began to count",
            f"epoch {own.last.epoch} up to {own.max_offset}",
            f"choose a member that has them, start {master}, or accept the loss",
        )
    else:
        return None
    return Judgement(own.member, False, *why)


def _outside_set(group: GroupRecord, candidate: str) -> Judgement | None:
    """Refusal of a member that nobody waited for when messages were acknowledged."""
    if candidate in group.electors:
        return None
    return Judgement(
        candidate,
        False,
        "is in the in-sync set",
        ", ".join(map(group.label, sorted(group.electors))),
        "it is not, and may lack what was acknowledged",
        "choose one of the set, start one, or accept the loss",
    )


def _unheard_of(group: GroupRecord, candidate: str) -> Judgement | None:
    """Refusal of a member that moved, before another voter is known to have heard of that."""
    if candidate not in unproven(None, group):
        return None
    return Judgement(
        candidate,
        False,
        "is the member, and no copy of its directory",
        "another voter that knows its new address",
        f"it moved to {group.address_of(candidate)}, and none is known to",
        "start the other members, or accept the loss",
    )


def _master_of(group: GroupRecord) -> str:
    """The master that wrote this record: its id."""
    return next((member.id for member in group.members if member.broker_id == 0), "nobody")


def _lost_besides(group: GroupRecord, own: VoteReply, lost: LostRange) -> LostRange:
    """The loss, with what slaves may have that the record does not name."""
    base, holders = group.loss_free_from, tuple(sorted({*lost.holders, _master_of(group)} - {own.member}))
    if lost.end is None or base is None or not own.whole:
        return LostRange(lost.first, None, holders)
    return LostRange(min(lost.first, own.max_offset), max(lost.end, base), holders)


def _lost(group: GroupRecord, own: VoteReply, answers: Mapping[str, VoteReply], *, enough: bool) -> LostRange:
    """Bytes that others have and the candidate lacks; an open end when members that may have more do not answer."""
    theirs = {
        answer.member: common_end(own.entries, own.max_offset, answer.entries, answer.max_offset)
        for answer in answers.values()
        if answer.key > own.key
    }
    ends = {id: answers[id].max_offset for id in theirs if answers[id].max_offset > theirs[id]}
    missing = sorted({member.id for member in group.members} - set(answers))
    first = min((theirs[id] for id in ends), default=own.max_offset)
    if missing and not enough:
        return LostRange(first, None, tuple(sorted({*ends, *missing})))
    return LostRange(first, max(ends.values(), default=first), tuple(sorted(ends)))


def _accepts(accept: Accepted, lost: LostRange) -> bool:
    if accept is None:
        return False
    return accept == "unknown" or (lost.end is not None and lost.end - lost.first <= accept)


def _switchover_rules(candidate: str, own: VoteReply, facts: SwitchoverFacts) -> Judgement | None:
    if candidate == facts.master:
        why = ("is not master", "a slave", "it is master", "choose another member")
    elif not facts.master_answers:
        why = (
            "the master lives",
            f"an answer from {facts.master_address}",
            "none",
            f"twinlog failover --candidate {own.address}",
        )
    elif not own.whole:
        why = (
            "has all that it acknowledged",
            "a log that lost nothing",
            "it has not caught up yet",
            "wait until it is",
        )
    elif not facts.following:
        why = ("follows the master", f"a stream from {facts.master_address}", "none", "see twinlog explain")
    elif facts.differs_at is not None:
        why = (
            "holds the same bytes",
            "equal logs",
            f"a difference at {facts.differs_at}",
            "see twinlog log diff --live",
        )
    elif facts.lag_bytes > facts.lag_max:
        why = ("has caught up", f"at most {facts.lag_max} bytes behind", f"{facts.lag_bytes} bytes", "wait until it is")
    elif facts.no_room:
        why = ("can store messages", "room on its disk", facts.no_room, "make room")
    else:
        return None
    return Judgement(candidate, False, *why)

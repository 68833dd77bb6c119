"""Decides whether this member begins a failover by itself. No I/O; times are monotonic seconds.

    stay   there is nothing to do, or it may not
    wait   until a time, and look again
    ask    the other voters, and witnesses where the own vote alone elects: a dry run, without any effect
    run    the failover that a person would begin, with this member as its candidate

A serving master runs, too, as its own successor, where a voter has promised a newer epoch that nobody began, or won another of
the same number: that voter can follow no older one, and nobody takes a promise back, so it would be lost to the group, or with
it all acknowledgements. Of two masters of one number only the one with the greater key is not outdone. If that one is gone, a
slave of it that has more than the other one runs, although that serves: it can never follow it.

Safety is not decided here: whoever runs has to win the votes of votes.py, and is judged by them. What is decided here is that a
living master is left alone, that the best candidate goes first, and that failures are not repeated without end.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from attrs import define, field, frozen

from twinlog.ha.election import witness
from twinlog.ha.election.epochs import key_of
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.in_sync_set import is_last_copy
from twinlog.ha.election.voter import LeaseReply, VoteReply, why_older
from twinlog.ha.election.votes import group_of, judge_failover
from twinlog.ha.election.witness import WitnessReply
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.role_file import AutoFailover, GroupRecord

DecisionKind = Literal["stay", "wait", "ask", "run"]

AUTOMATIC: tuple[AutoFailover, ...] = ("members", "etcd")
ANSWERS_FRESH_SECONDS = 1.0  # Older ones are asked for again.
ASK_AGAIN_SECONDS = 1.0
ASK_SOON_SECONDS = 0.2  # After a process that is gone: others are about to notice. Before the next one's turn.
RANK_SECONDS = 1.0  # The next best candidate waits so much longer.
JITTER_SECONDS = 0.2
BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX = 1.0, 30.0
FLAP_WINDOW_SECONDS = 600.0
FLAPS_FREE = 3  # So many automatic elections within the window are no flapping.
HOLD_OFF_SECONDS, HOLD_OFF_SECONDS_MAX = 5.0, 120.0


@frozen(kw_only=True)
class Decision:
    """The next action, and why, for people. `at`: for wait, when to look again. `is_turn`: it waits for others' turn only."""

    kind: DecisionKind
    why: str
    at: float = math.inf
    is_turn: bool = False


@frozen(kw_only=True)
class Asked:
    """Answers of the others, and this member's own, to a dry run that ended at `at`."""

    at: float
    answers: Mapping[str, VoteReply]  # By member id.
    witnesses: Sequence[WitnessReply] = ()
    group: GroupRecord | None = None  # The newest record of all answers; etcd's, where that keeps it.
    why_no_record: str = ""  # Why etcd's record is not known, where it is needed.
    announced: str = ""  # Id of the member that told etcd lately that it serves.


@frozen(kw_only=True)
class Facts:
    """All that the decision depends on. `suspected_at`: since when the master is suspected; None: it is not."""

    now: float
    own: str
    master: str  # Id of the master that is suspected; "": not known.
    group: GroupRecord | None
    is_serving: bool
    paused: str  # Why nothing may change; "" when it may.
    cannot_store: str  # Why this member could store nothing; "" when it could.
    why_not: str = ""  # Another reason of this member's own, such as a role change under way.
    seconds_left: float  # Until the master is suspected.
    heard: str  # When the master was heard last, in words.
    is_gone: bool = False  # Its process is known to be gone.
    asked: Asked | None
    suspected_at: float | None
    held_back_at: float = -math.inf  # When something else than others' turn held it back last, a pause for example.
    held_off_until: float = -math.inf
    tried_at: float = -math.inf  # When the last run failed,
    tries: int = 0  # and how many failed since a master was heard.
    jitter: float  # From 0 to 1, drawn anew for each suspicion and each try.
    outpromised: bool = False  # A voter can follow this master no more; suspected_at: since when it is due.
    deposed: AbstractSet[str] = frozenset()  # Members that lost mastership by an automatic failover lately.
    loss_max: int = 0  # Known bytes that may be given up, where only the master has to hold a message.


@frozen(kw_only=True)
class Standing:
    """Standing of a member as the next master. `rank` 0: it would be next; None: `against` speaks against it. `votes`: it could
    promise its vote all the same.
    """

    member: str
    rank: int | None
    against: str = ""
    votes: bool = False


def mode_of(group: GroupRecord | None) -> AutoFailover:
    """The mode of a group: who begins a failover there."""
    return (group.auto_failover if group is not None else None) or "off"


def decide(facts: Facts) -> Decision:
    """Decide, by the first rule that applies."""
    if why := _why_never(facts):
        return Decision(kind="stay", why=why)
    group, now = facts.group, facts.now
    assert group is not None
    if facts.seconds_left > 0 or facts.suspected_at is None:
        return Decision(
            kind="wait", why=facts.heard, at=now + facts.seconds_left if facts.seconds_left > 0 else math.inf
        )
    if why := facts.paused or facts.why_not or (facts.cannot_store and f"it could store nothing: {facts.cannot_store}"):
        return Decision(kind="stay", why=why)
    if now < facts.held_off_until:
        why = f"there were many automatic elections: it holds off for {facts.held_off_until - now:.0f} s more"
        return Decision(kind="wait", why=why, at=facts.held_off_until)
    retry_at = facts.tried_at + back_off(facts.tries, facts.jitter)
    if now < retry_at:
        return Decision(
            kind="wait", why=f"the last attempt failed; it tries again in {retry_at - now:.1f} s", at=retry_at
        )
    asked = facts.asked
    if asked is None or asked.at < max(facts.suspected_at, facts.tried_at) or now >= asked.at + ANSWERS_FRESH_SECONDS:
        return Decision(kind="ask", why=f"{facts.heard}: asks the others")
    group = group_of(asked.group or group, asked.answers) or group
    if why := objection(facts, group, asked):
        again_at = asked.at + (ASK_SOON_SECONDS if facts.is_gone else ASK_AGAIN_SECONDS)
        return Decision(kind="wait", why=why, at=again_at) if now < again_at else Decision(kind="ask", why=why)
    rank = _rank(facts, standings(group, asked.answers, facts.deposed))
    # Where all see the same the order is clear; else two may take themselves for the next one, and must not begin together.
    jitter = 0.0 if group.voters - {facts.master} <= asked.answers.keys() and not facts.tries else facts.jitter
    at = max(facts.suspected_at, retry_at, facts.held_back_at) + rank * RANK_SECONDS + jitter * JITTER_SECONDS
    if now < at:
        why = f"{rank} better candidates go first" if rank else "about to begin"
        return Decision(kind="wait", why=why, at=at, is_turn=True)
    return Decision(kind="run", why=_reason(facts, group, asked))


def _rank(facts: Facts, found: Sequence[Standing]) -> int:
    """Number of members that go first: all that may win without a doubt, for one that only wins because of what they say."""
    if facts.is_serving:
        return 0
    own = next(each.rank for each in found if each.member == facts.own)
    return own if own is not None else sum(each.rank is not None for each in found)


def back_off(tries: int, jitter: float) -> float:
    """Seconds from a failed attempt to the next one."""
    if not tries:
        return 0.0
    return float(min(BACK_OFF_SECONDS * 2 ** (tries - 1), BACK_OFF_SECONDS_MAX)) * (1 + jitter)


def _why_never(facts: Facts) -> str:
    """Reasons that do not depend on the master."""
    group = facts.group
    if group is None:
        return "it belongs to no group with a record"
    if (mode := mode_of(group)) not in AUTOMATIC:
        return f"autoFailover={mode}: a person decides"
    member = group.member(facts.own)
    if member is None or not member.votes:
        return "it is no voter of its group"
    if facts.is_serving and facts.outpromised and group.acks_needed <= 1:
        return "it is the master, and could lose that: all voters would have to answer"
    return "it is the master" if facts.is_serving and not facts.outpromised else ""


def objection(facts: Facts, group: GroupRecord, asked: Asked) -> str:
    """The objection to this member in the answers; "" for nothing."""
    answers = asked.answers
    if asked.why_no_record:
        return f"etcd keeps the group's record, and cannot be relied on: {asked.why_no_record}"
    if facts.own not in group.electors:
        names = ", ".join(map(group.label, sorted(group.electors)))
        return f"it is not in the in-sync set of version {group.version}, and may lack what was acknowledged: {names}"
    for id, answer in sorted(answers.items()):
        label = group.label(id)
        if id != facts.own and not facts.is_serving and answer.hears is None:
            return f"{label} cannot say whether it hears the master: it is of an older version"
        # Of a serving master, whoever follows it hears it. Who follows, or waits for, a newer one, hears that one.
        is_older = facts.is_serving and answer.promised.epoch <= answers[facts.own].promised.epoch
        if id != facts.own and answer.hears and not is_older and not _is_stuck(answer, answers[facts.own]):
            return f"{label} hears a master" if not answer.is_master else f"{label} is master"
        if answer.group is not None and mode_of(answer.group) not in AUTOMATIC:
            return f"the members disagree: {label} has autoFailover={mode_of(answer.group)}"
        if answer.holds_off_ms > 0:
            return f"there were many automatic elections: {label} holds off for {answer.holds_off_ms / 1000:.0f} s more"
    judged = judge_failover(group, facts.own, answers, accepted_loss(group, facts.loss_max))
    if not judged.may:
        return f"{judged.rule}: needed {judged.needed}, actual {judged.actual}"
    return _alone(facts, group, asked) if not facts.is_serving else _not_outpromised(facts, group, answers)


def _is_stuck(master: VoteReply, own: VoteReply) -> bool:
    """True if this member can never follow a master, since it promised the same number to another winner, and that master cannot
    begin anew, since this member has more.
    """
    is_rival = master.is_master and master.promised.epoch == own.promised.epoch and master.promised != own.promised
    return is_rival and key_of(own.entries, own.max_offset) > key_of(master.entries, master.max_offset)


def accepted_loss(group: GroupRecord, loss_max: int) -> int | None:
    """Known bytes that an election may give up: none where another member than the master had to hold them."""
    return loss_max if loss_max > 0 and group.acks_needed <= 1 else None


def _not_outpromised(facts: Facts, group: GroupRecord, answers: Mapping[str, VoteReply]) -> str:
    """Reason why a master need not begin anew; "" where a voter answers that can follow it no more, or etcd has a newer epoch."""
    own = answers[facts.own].promised
    if group.is_in_etcd and group.epoch > own.epoch:
        return ""
    is_lost = any(each.promised != own and each.promised.epoch >= own.epoch for each in answers.values())
    return "" if is_lost else "nobody answers who has promised a newer epoch"


def _alone(facts: Facts, group: GroupRecord, asked: Asked) -> str:
    """Reason why a member whose own vote is enough must not take being alone for the master's death."""
    own = asked.answers[facts.own]
    if needed(group) > 1 or any(_is_stuck(answer, own) for answer in asked.answers.values()):
        return ""
    if (
        group.is_in_etcd
    ):  # It was asked just now: who is cut off itself gets no answer. The master's own sign is there, or not.
        lives = asked.announced not in ("", facts.own) and not facts.is_gone
        return f"{group.label(asked.announced)} told etcd a moment ago that it serves" if lives else ""
    if asked.answers.keys() - {facts.own} and not any(witness.hears for witness in asked.witnesses):
        return ""
    why = witness.objection(asked.witnesses)
    return f"it may be cut off itself: {why}" if why else ""


def standings(
    group: GroupRecord,
    answers: Mapping[str, VoteReply] | Mapping[str, LeaseReply],
    deposed: AbstractSet[str] = frozenset(),
    *,
    master: str = "",
) -> tuple[Standing, ...]:
    """Standings of all members, the next master first: by what they hold, then who was not deposed lately, then by broker id.

    Judged by answers to a dry run, or to a serving `master` (its id) that renews its lease.
    """
    able: list[tuple[tuple[int, bool, str, int], bool, int, str]] = []
    refused: list[Standing] = []
    for member in sorted(group.members, key=lambda member: member.broker_id):
        answer = answers.get(member.id)
        why = "it is the master" if member.id == master else _against(group, member.id, answer)
        if answer is None or why:
            refused.append(Standing(member=member.id, rank=None, against=why))
        elif not answer.can_store:
            refused.append(Standing(member=member.id, rank=None, against="it could store nothing", votes=True))
        else:
            entries = answer.entries if isinstance(answer, VoteReply) else (answer.last,)
            key = key_of(entries, answer.max_offset)
            able.append((key, member.id not in deposed, -member.broker_id, member.id))
    able.sort(reverse=True)
    ranked = [Standing(member=each[-1], rank=rank, votes=True) for rank, each in enumerate(able)]
    return (*ranked, *refused)


def _against(group: GroupRecord, id: str, answer: VoteReply | LeaseReply | None) -> str:
    """Reason why its vote does not count; "" when it does."""
    member = group.member(id)
    if member is None or not member.votes:
        return "it cannot vote: a RocketMQ slave"
    if id not in group.electors:
        return "it is not in the in-sync set, and may lack what was acknowledged"
    if answer is None:
        return "it does not answer"
    if not (answer.granted if isinstance(answer, VoteReply) else answer.accepted):
        return answer.why
    if isinstance(answer, VoteReply) and (why := why_older(group, id, answer.codes)):
        return why
    return "" if answer.whole else "it may lack bytes that it acknowledged, and has not caught up since"


def why_nobody(group: GroupRecord, found: Sequence[Standing]) -> str:
    """Reason why these standings elect nobody if the master dies now; "" when they elect somebody."""
    votes, wanted = sum(each.votes for each in found), needed(group)
    if votes < wanted:
        if is_last_copy(group):
            return "only the master is in the in-sync set, and others may lack what it acknowledges alone"
        alone = "only the master has to hold a message, so that nobody else knows what would be lost: "
        who = "members in the in-sync set" if group.is_in_etcd else "members"
        counts = f"{wanted} of {len(group.electors)} {who} would have to promise their votes, {votes} could"
        return f"{alone if group.acks_needed <= 1 else ''}{counts}"
    return "" if any(each.rank is not None for each in found) else "nobody could store messages"


def _reason(facts: Facts, group: GroupRecord, asked: Asked) -> str:
    """For the history: who did not hear the master."""
    if facts.is_serving:
        return facts.heard
    others = [group.label(id) for id in sorted(asked.answers) if id != facts.own]
    agree = [*others, *(reply.address for reply in asked.witnesses if reply.hears is False)]
    return f"{facts.heard}; nor do {', '.join(agree)} hear it" if agree else facts.heard


@define(eq=False)
class Elections:
    """Automatic elections that this member has seen: when, and who lost mastership by them. Those from before its start are dated
    by the wall clock; where that was set meanwhile, fewer count.
    """

    _last: EpochId | None = field(default=None, init=False)
    _seen: list[tuple[float, str]] = field(factory=list, init=False)  # When, and the master before.

    def note(self, entries: Sequence[EpochEntry], now: float, now_ms: int) -> None:
        """Note the newest epochs of this member's log; called again and again."""
        if entries[-1].id != self._last:
            last = self._last.epoch if self._last is not None else -1
            for entry in entries:
                is_automatic = entry.decided_by == "group" and entry.kind != "restart"  # That changes no master.
                if entry.epoch > last and is_automatic:
                    is_new = self._last is not None and entry is entries[-1]
                    age = 0.0 if is_new else max(now_ms - entry.at_ms, 0) / 1000
                    self._seen.append((now - age, entry.old if entry.old != entry.winner else ""))
            self._last = entries[-1].id
        self._seen = [each for each in self._seen if now < each[0] + FLAP_WINDOW_SECONDS]

    @property
    def count(self) -> int:
        """Number of them within FLAP_WINDOW_SECONDS."""
        return len(self._seen)

    def held_off_ms(self, now: float) -> int:
        """Milliseconds for which this member goes on to hold off; 0 if it does not."""
        return round(max(self.held_off_until - now, 0.0) * 1000)

    @property
    def deposed(self) -> frozenset[str]:
        """Members that lost mastership by them."""
        return frozenset(old for _, old in self._seen if old)

    @property
    def held_off_until(self) -> float:
        """Time at which this member stops holding off; in the past if it does not."""
        more = len(self._seen) - FLAPS_FREE
        if more < 0:
            return -math.inf
        return self._seen[-1][0] + min(HOLD_OFF_SECONDS * float(2**more), HOLD_OFF_SECONDS_MAX)

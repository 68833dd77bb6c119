"""Events: differences of two snapshots, in sentences. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from attrs import frozen

from twinlog.cluster.admin.roles import History, Reign
from twinlog.cluster.dashboard.model.snapshot import DIVERGED, SILENT, ClusterSnapshot, Mark, MemberSnapshot
from twinlog.cluster.observe.elections import What
from twinlog.cluster.observe.failover import news

EVENTS_MAX = 200
REASON_LENGTH_MAX = 120
Kind = Literal["role", "state", "divergence", "member", "problem", "election"]
ELECTIONS: dict[What, tuple[Mark, str]] = {
    "suspected": ("warn", "takes its master for dead"),
    "heard": ("ok", "hears its master again"),
    "begun": ("warn", "began a failover by itself"),
    "won": ("ok", "was elected"),
    "given up": ("bad", "gave up its election"),
}


@frozen
class Event:
    """Something that happened at a time, in seconds since 1970."""

    at: float
    kind: Kind
    mark: Mark
    subject: str
    text: str


def changes(before: ClusterSnapshot | None, now: ClusterSnapshot) -> list[Event]:
    """Differences to the snapshot before; none for the first one."""
    if before is None:
        return []
    events = []
    if (before.problem is None) != (now.problem is None):
        text = f"nobody could be asked: {now.problem}" if now.problem else "the name server answers again"
        events.append(Event(now.at, "problem", "bad" if now.problem else "ok", "name server", text))
    if now.problem is not None or before.problem is not None:
        return events
    old = {each.member.address: each for each in before.members}
    for each in now.members:
        known = old.pop(each.member.address, None)
        events += _of_member(now.at, known, each) if known else [_came(now.at, each)]
    events += (Event(now.at, "member", "none", each.member.name, "is not known any more") for each in old.values())
    return [*events, *_elections(before, now)]


def _elections(before: ClusterSnapshot, now: ClusterSnapshot) -> Iterable[Event]:
    """Deeds of members by themselves. A later event of one moment stands above an earlier one, so the latest comes first."""
    known, found = ([each.failover for each in look.groups if each.failover is not None] for look in (before, now))
    for each in reversed(news(known, found)):
        of, words = ELECTIONS[each.what]
        yield Event(now.at, "election", of, each.member, words + (f" ({_short(each.why)})" if each.why else ""))


def _came(at: float, each: MemberSnapshot) -> Event:
    member = each.member
    return Event(at, "member", each.mark, member.name, f"is there: {member.role}, {member.state}")


def _of_member(at: float, before: MemberSnapshot, now: MemberSnapshot) -> list[Event]:
    old, member, found = before.member, now.member, []
    is_new_epoch = member.role == "master" and (member.epoch or 0) > (old.epoch or 0)
    if old.role != member.role or is_new_epoch:
        what = "is the master now" if member.role == "master" else f"is a {member.role} now"
        epoch = f", in epoch {member.epoch}" if member.epoch else ""
        found.append(Event(at, "role", now.mark, member.name, what + epoch))
    if old.state != member.state:
        why = f" ({_short(member.reason)})" if member.reason and now.mark != "ok" else ""
        kind: Kind = "divergence" if member.state in DIVERGED else "state"
        words = "does not answer" if member.state == SILENT[0] else f"is {member.state}"
        found.append(Event(at, kind, now.mark, member.name, f"{words}, was {old.state}{why}"))
    return found


def _short(reason: str) -> str:
    """The first part of a text; the issues have all of it."""
    first = reason.partition("; ")[0].partition(". ")[0]
    return first if len(first) <= REASON_LENGTH_MAX else f"{first[:REASON_LENGTH_MAX]}…"


def of_history(history: History) -> list[Event]:
    """Changes of the master that members remember, with their times; those from before times were kept are left out."""
    return [
        Event(
            each.at_ms / 1000,
            "role",
            "warn" if each.kind == "forced" else "ok",
            each.new,
            f"became the master in epoch {each.epoch} ({_how(each)}{f': {each.reason}' if each.reason else ''})",
        )
        for each in history.reigns
        if each.at_ms > 0
    ]


def _how(reign: Reign) -> str:
    return f"{reign.kind} by the group itself" if reign.decided_by == "group" else reign.kind


def merged(known: Sequence[Event], new: Iterable[Event]) -> tuple[Event, ...]:
    """Merge events, newest first, and drop the oldest. A role change that is in both lists is kept once."""
    kept = list(known)
    for event in new:
        if not any(_is_same(event, each) for each in kept):
            kept.append(event)
    return tuple(sorted(kept, key=lambda each: -each.at)[:EVENTS_MAX])


def _is_same(one: Event, other: Event) -> bool:
    return one == other or (
        one.kind == other.kind == "role" and one.subject == other.subject and abs(one.at - other.at) < 5
    )

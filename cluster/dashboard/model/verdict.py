"""Verdict of the page: rules about one group, the worst first, each with a Verdict or None; and one for all groups. Pure."""

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from twinlog.cluster.dashboard.model.snapshot import (
    DIVERGED,
    FOLLOWING,
    SILENT,
    ClusterSnapshot,
    GroupSnapshot,
    Mark,
    MemberSnapshot,
)
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.in_sync import etcd_text
from twinlog.cluster.observe.in_sync_rules import ONE_COPY
from twinlog.cluster.text import about, count, seconds, size
from twinlog.store.util.text import counted

BEHIND_SECONDS, BEHIND_BYTES = 2.0, 16_000_000  # From here on a slave is behind; below it is under way.


@frozen(kw_only=True)
class PageVerdict:
    """A headline, its severity, the time since when it holds (seconds since 1970), and further lines."""

    mark: Mark
    headline: str
    since: float | None = None
    was_so: bool = False
    details: tuple[str, ...] = ()


def _about(each: MemberSnapshot, mark: Mark, headline: str, *details: str | None) -> PageVerdict:
    """A verdict that holds since a member has its state; empty details are left out."""
    return PageVerdict(
        mark=mark, headline=headline, since=each.since, was_so=each.was_so, details=tuple(filter(None, details))
    )


def of_group(group: GroupSnapshot, snapshot: ClusterSnapshot) -> PageVerdict:
    """The verdict of the first rule that has one."""
    return next(filter(None, (rule(group, snapshot) for rule in RULES)), None) or _fine(group)


def _two_masters(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    if len(group.masters) < 2:
        return None
    names = " and ".join(each.member.name for each in group.masters)
    return PageVerdict(
        mark="bad",
        headline=f"NOT SAFE: {group.name} has {len(group.masters)} masters, {names}",
        since=max(each.since for each in group.masters),
        details=("What is sent to one of them the other does not have. See: twinlog doctor",),
    )


def _changing(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    if group.changing is None:
        return None
    return PageVerdict(mark="warn", headline=f"The master is being changed: {group.changing}")


def _no_master(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    if group.masters:
        return None
    gone = next((each for each in group.members if each.member.role == "master"), None)
    why = f": {gone.member.name} {_state(gone)}" if gone else ""
    slaves = group.slaves
    if group.in_sync is not None:  # Others may lack what was acknowledged.
        slaves = tuple(each for each in slaves if each.member.name in group.in_sync.in_sync)
    kept = [each for each in slaves if each.member.state not in (*SILENT, *DIVERGED, "failed")]
    if (group.acks_needed or 1) >= 2 and kept:
        headline = f"NO MASTER: {group.name} takes no messages{why}"
        on = "" if len(slaves) < (group.acks_needed or 1) else "at least one of "
        held = f"Every acknowledged message is on {on}{_names(kept)}: nothing is lost so far."
        if len(kept) < len(slaves):
            held = "Every acknowledged message was on two members or more; not all of them answer now."
    else:
        headline = f"NOT SAFE: {group.name} has no master{why}"
        held = "Its newest messages may be on no other member."
        if group.in_sync is not None and group.in_sync.is_one_copy:
            held = f"Its newest messages are on {group.in_sync.in_sync[0]} only: bring that member back."
    return PageVerdict(
        mark="bad",
        headline=headline,
        since=gone.since if gone else None,
        was_so=gone.was_so if gone else False,
        details=(held, *_who_elects(group)),
    )


def _who_elects(group: GroupSnapshot) -> Iterator[str]:
    """Reaction of a group to a master that is gone."""
    failover = group.failover
    if failover is None or failover.mode == "off":
        return
    waits = next((f": {each.why}" for each in failover.members if each.suspects and each.why), "")
    yield f"{group.name} elects another master by itself{waits}."


def _diverged(group: GroupSnapshot, snapshot: ClusterSnapshot) -> PageVerdict | None:
    diverged = [each for each in group.slaves if each.member.state in DIVERGED]
    if not diverged:
        return None
    first, good = diverged[0], _good(group)
    what = f"{first.member.name} {_how_diverged(first)}"
    more = f", and {counted(len(diverged) - 1, 'more', 'more')}" if len(diverged) > 1 else ""
    return _about(
        first, "bad", f"{'NOT SAFE' if not good else 'One slave is no copy'}: {what}{more}", _held(good, group)
    )


def _one_copy(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    """The in-sync set in etcd has shrunk to the master: acknowledged messages are on one disk."""
    found = group.in_sync
    if found is None or not found.is_one_copy:
        return None
    do = f"bring {' or '.join(found.outside)} back" if found.outside else "start another member"
    return PageVerdict(
        mark="bad",
        headline=f"NOT SAFE: one copy only: what {group.name} acknowledges is on {found.in_sync[0]} alone",
        since=found.changed_ms / 1000 if found.changed_ms else None,
        details=(
            f"The loss of that disk loses it. Do: {do}.",
            *((f"{found.change_why}.",) if found.change_why else ()),
        ),
    )


def _without_etcd(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    found = group.in_sync
    if found is None or not found.without_etcd:
        return None
    first = found.without_etcd[0]
    return PageVerdict(
        mark="warn",
        headline=f"{group.name} goes on, and {etcd_text(found)}",
        since=first.since_ms / 1000 if first.since_ms else None,
        details=("Elections and changes of the in-sync set wait. See: twinlog doctor",),
    )


def _critical(group: GroupSnapshot, snapshot: ClusterSnapshot) -> PageVerdict | None:
    """Other critical findings of `twinlog check`: no lease, a full disk, damage."""
    names = {group.name, *(each.member.name for each in group.members)}
    silent = {each.member.name for each in group.members if each.member.state in SILENT}
    found = [
        each
        for each in snapshot.findings
        if each.level is Level.CRITICAL and each.subject in names - silent and each.cause not in SAID_OTHERWISE
    ]
    if not found:
        return None
    details = (f"Do: {found[0].fix}",) if found[0].fix else ()
    return PageVerdict(mark="bad", headline=f"NOT SAFE: {found[0].what}", details=details)


def _master_not_serving(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    """The master runs and takes no messages: its disk is nearly full, or a role change is not finished."""
    master = group.masters[0]
    if master.member.state == "serving":
        return None
    headline = f"{group.name} takes no messages for now: {master.member.name} {_state(master)}"
    return _about(master, "warn", headline, master.member.reason)


SAID_OTHERWISE = ("lag", "no slave registered", ONE_COPY)  # Covered by other rules, with their numbers.


def _too_few_copies(group: GroupSnapshot, snapshot: ClusterSnapshot) -> PageVerdict | None:
    if not group.slaves:
        return PageVerdict(
            mark="warn",
            headline=f"One copy only: {group.name} has no slave",
            details=("A slave makes it two: twinlog up --slaves 1, or twinlog broker with brokerRole=SLAVE",),
        )
    if _good(group):
        return None
    worst = group.slaves[0]
    behind = f"; it lacks at most {size(worst.lag_bytes)}" if worst.lag_bytes is not None else ""
    headline = f"NOT SAFE: new messages are on one member only: {worst.member.name} {_state(worst)}{behind}"
    return _about(worst, "bad", headline)


def _someone_away(group: GroupSnapshot, snapshot: ClusterSnapshot) -> PageVerdict | None:
    away = [each for each in group.slaves if each.member.state not in FOLLOWING and each.member.state != "answering"]
    if not away:
        return None
    first, good = away[0], _good(group)
    held = _held(good, group)
    lacks = f", {'at most ' * first.is_last_word}{size(first.lag_bytes)} behind" if first.lag_bytes else ""
    behind = _behind(group, snapshot)
    who = "One slave is away" if len(away) == 1 else f"{len(away)} slaves are away"
    return _about(
        first, "warn", f"{who}: {first.member.name} {_state(first)}{lacks}", held, behind.headline if behind else None
    )


def _behind(group: GroupSnapshot, _look: ClusterSnapshot) -> PageVerdict | None:
    behind = sorted((each for each in group.slaves if is_behind(each)), key=lambda each: -(each.lag_bytes or 0))
    if not behind:
        return None
    first = behind[0]
    parts = [size(first.lag_bytes)] if first.lag_bytes is not None else []
    parts += [seconds(first.lag_seconds)] if first.lag_seconds is not None else []
    who = "One slave is behind" if len(behind) == 1 else f"{len(behind)} slaves are behind, most"
    level = len(group.slaves) - len(behind)
    held = f"{_of(level, group)} {'is' if level == 1 else 'are'} level with the master."
    since = max(0.0, _look.at - first.lag_seconds) if first.lag_seconds is not None else None
    headline = f"{who}: {first.member.name} by {', '.join(parts)}; {end_of(first)}"
    return PageVerdict(mark="warn", headline=headline, since=since, details=(held,))


RULES = (
    _two_masters,
    _changing,
    _no_master,
    _diverged,
    _one_copy,
    _critical,
    _master_not_serving,
    _too_few_copies,
    _someone_away,
    _behind,
    _without_etcd,
)


def _fine(group: GroupSnapshot) -> PageVerdict:
    slaves, total = group.slaves, len(group.slaves)
    if any(each.member.state == "answering" for each in slaves):
        headline = (
            f"{counted(total, 'slave answers', 'slaves answer')}; RocketMQ does not report what they have confirmed"
        )
        return PageVerdict(mark="none", headline=f"As far as is known: {headline}")
    if any(each.lag_bytes is None for each in slaves):
        headline = f"{counted(total, 'slave follows', 'slaves follow')}; how far behind is not known"
        return PageVerdict(mark="none", headline=f"As far as is known: {headline}", details=_ack_meaning(group))
    if all(each.lag_bytes == 0 for each in slaves):
        hold = "slave holds" if total == 1 else "slaves hold"
        headline = f"{total} of {total} {hold} every acknowledged message"
    elif (group.acks_needed or 1) < 2 and (alone := min((each.lag_bytes or 0) for each in slaves)):
        why = "SEND_OK waits for no slave" if group.acks_needed else "it is not known if SEND_OK waits for slaves"
        headline = f"the newest {size(alone)} are on the master only: {why}"
        return PageVerdict(
            mark="none", headline=f"Copied within {within(slaves)}; {headline}", details=_ack_meaning(group)
        )
    else:
        follow = "slave follows" if total == 1 else "slaves follow"
        headline = f"{total} of {total} {follow} within {within(slaves)}"
    return PageVerdict(mark="ok", headline=f"All data is safe: {headline}", details=_ack_meaning(group))


def _ack_meaning(group: GroupSnapshot) -> tuple[str, ...]:
    """Meaning of an acknowledgement here."""
    policy = next((each.member.ack_policy for each in group.masters if each.member.ack_policy), None)
    return (f"A producer hears SEND_OK when its message is {policy}.",) if policy else ()


def _good(group: GroupSnapshot) -> list[MemberSnapshot]:
    """Slaves that hold what is acknowledged, or are about to: they follow, and are not far behind."""
    return [each for each in group.slaves if each.member.state in (*FOLLOWING, "answering")]


def is_behind(each: MemberSnapshot) -> bool:
    """True if a slave that follows lags by more than what is always in flight."""
    if each.member.state not in FOLLOWING:
        return False
    return (each.lag_seconds or 0) >= BEHIND_SECONDS or (each.lag_bytes or 0) >= BEHIND_BYTES


def end_of(each: MemberSnapshot) -> str:
    """Estimate of when a slave will have caught up."""
    if each.catch_up_seconds is not None:
        return f"caught up in about {about(each.catch_up_seconds)}"
    return "and it falls further behind" if each.is_growing else "it does not catch up yet"


def within(slaves: Sequence[MemberSnapshot]) -> str:
    known = [each.lag_seconds for each in slaves if each.lag_seconds is not None]
    if known:
        return seconds(max(0.1, *known))
    return size(max((each.lag_bytes or 0 for each in slaves), default=0))


def _of(number: int, group: GroupSnapshot) -> str:
    return f"{number} of {counted(len(group.slaves), 'slave', 'slaves')}"


def _state(each: MemberSnapshot) -> str:
    return "does not answer" if each.member.state == "unreachable" else f"is {each.member.state}"


def _how_diverged(each: MemberSnapshot) -> str:
    start = next((part.start for part in each.diverged if not part.is_cut), None)
    if each.member.state == "below min":
        return "was away for too long, and has to begin anew"
    where = f" from byte {count(start)} on" if start is not None else ""
    what = "holds other bytes than its master" if each.member.state == "diverged" else "holds bytes its master lacks"
    return what + where


def _held(good: list[MemberSnapshot], group: GroupSnapshot) -> str:
    """Meaning of the slaves that follow: one that is behind may lack what another one has confirmed."""
    level = [each for each in good if each.lag_bytes == 0]
    if len(level) == len(good):
        return f"{_of(len(good), group)} {'holds' if len(good) == 1 else 'hold'} every acknowledged message."
    return f"{_of(len(good), group)} {'follows' if len(good) == 1 else 'follow'}, the last within {_span(good)}."


def _span(slaves: list[MemberSnapshot]) -> str:
    known = [each for each in slaves if each.lag_bytes is not None]
    return within(known) if len(known) == len(slaves) else "a time that is not known"


def _names(members: list[MemberSnapshot]) -> str:
    return " and ".join(each.member.name for each in members) if len(members) < 3 else f"{len(members)} slaves"


ORDER: tuple[Mark, ...] = ("bad", "warn", "none", "ok")


def verdict_of(snapshot: ClusterSnapshot) -> PageVerdict:
    """The verdict for the whole page."""
    if snapshot.problem is not None:
        return PageVerdict(
            mark="bad",
            headline=f"Not known: {snapshot.problem}",
            details=("What is below is of the last time that the name server answered.",) if snapshot.groups else (),
        )
    if not snapshot.groups and not snapshot.gone:
        return PageVerdict(
            mark="warn", headline="Nobody here yet: no broker is registered", details=("Start one with: twinlog up",)
        )
    verdicts = [_of_gone(snapshot)] if snapshot.gone else []
    verdicts += sorted((of_group(each, snapshot) for each in snapshot.groups), key=lambda each: ORDER.index(each.mark))
    if len(verdicts) == 1:
        return verdicts[0]
    return _of_all(verdicts, snapshot)


def _of_gone(snapshot: ClusterSnapshot) -> PageVerdict:
    names = ", ".join(snapshot.gone[:5]) + (" and more" if len(snapshot.gone) > 5 else "")
    if not snapshot.groups:
        return PageVerdict(mark="bad", headline=f"NOT RUNNING: no broker is registered any more; there were {names}")
    return PageVerdict(
        mark="bad",
        headline=f"NOT RUNNING: nobody is registered any more of the group of {names}",
        details=("If they were taken away for good, start the dashboard anew: it forgets them.",),
    )


def _of_all(verdicts: list[PageVerdict], snapshot: ClusterSnapshot) -> PageVerdict:
    fine = sum(each.mark == "ok" for each in verdicts)
    if fine == len(verdicts):
        slaves = [each for group in snapshot.groups for each in group.slaves]
        level = all(each.lag_bytes == 0 for each in slaves)
        follow = "hold every acknowledged message" if level else f"follow within {within(slaves)}"
        headline = f"All data is safe: {len(slaves)} of {len(slaves)} slaves of {fine} groups {follow}"
        return PageVerdict(mark="ok", headline=headline)
    first, *others = verdicts
    more = tuple(each.headline for each in others if each.mark != "ok")
    rest = (f"{fine} of {len(verdicts)} groups {'is' if fine == 1 else 'are'} fine.",) if fine else ()
    return evolve(first, details=(*first.details, *more, *rest))

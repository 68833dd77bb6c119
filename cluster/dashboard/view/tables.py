"""Commands inside of sentences: findings name them as `twinlog verb ...`; the page shows them apart, to copy. Pure."""

import re
from collections.abc import Mapping, Sequence

from twinlog.cluster.dashboard.model.events import Event
from twinlog.cluster.dashboard.model.snapshot import FOLLOWING, ClusterSnapshot, Mark, MemberSnapshot
from twinlog.cluster.dashboard.model.verdict import end_of, is_behind
from twinlog.cluster.dashboard.view.html import Markup, join, mark, tag
from twinlog.cluster.observe.consumption import LagReport, TopicLag
from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import Member
from twinlog.cluster.text import UNKNOWN, clock, count, day_and_clock, rate, seconds, size
from twinlog.store.util.text import counted

# A command ends where the sentence goes on: at a comma, a semicolon, a full stop, or at "which".
_COMMAND = re.compile(r"twinlog [a-z]+(?: (?!which\b|which,|or\b|and\b|says\b)[^\s,;]+)*")
# What helps where a finding names no command: by its cause.
BY_CAUSE = {
    "diverged": "twinlog rewind {subject} --dry-run",
    "ahead": "twinlog rewind {subject} --dry-run",
    "below min": "twinlog reinit {subject}",
}


def command_of(finding: Finding, snapshot: ClusterSnapshot) -> str:
    """The command that repairs it, or explains more about it."""
    if finding.cause in BY_CAUSE:
        return BY_CAUSE[finding.cause].format(subject=finding.subject)
    for text in (finding.fix, finding.what):
        if found := _COMMAND.search(text):
            return found.group().rstrip(".:")
    if finding.subject in {each.member.name for each in snapshot.members}:
        return f"twinlog explain {finding.subject}"
    return "twinlog doctor"


LEVEL_MARKS: dict[Level, Mark] = {Level.CRITICAL: "bad", Level.WARNING: "warn", Level.NOTE: "none"}
EVENTS_SHOWN = 40
# Title, class of the cells. "wide": left out where there is no room; "number": right-aligned.
MEMBER_COLUMNS = (
    ("Member", ""),
    ("Role", ""),
    ("State", ""),
    ("For", "number"),
    ("Epoch", "number wide"),
    ("Written", "number wide"),
    ("Flushed", "number wide"),
    ("Confirmed", "number wide"),
    ("Lag", "number"),
    ("Behind", "number"),
    ("Level in", "number"),
    ("Rate", "number wide"),
)


def table(caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[object]], empty: str) -> Markup:
    """A table that scrolls inside of itself where it does not fit; each cell has its column's class."""
    if not rows:
        return tag("p", empty, class_="quiet")
    head = tag("tr", [tag("th", title, scope="col", class_=name or None) for title, name in columns])
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=columns[0][1] or None),
            [tag("td", cell, class_=name or None) for cell, (_, name) in zip(row[1:], columns[1:], strict=True)],
        )
        for row in rows
    ]
    drawn = tag("table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", body))
    return tag("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)


def members_table(snapshot: ClusterSnapshot) -> Markup:
    """The state of all members."""
    return table(
        "Members of the cluster",
        MEMBER_COLUMNS,
        [_member_row(each, snapshot.at) for each in snapshot.members],
        "No broker is registered.",
    )


def _member_row(each: MemberSnapshot, now: float) -> list[object]:
    member = each.member
    since = seconds(now - each.since)
    late = is_behind(each)
    most = "≤ " if each.is_last_word else ""
    return [
        join(
            tag("span", member.name, class_="name"),
            tag("small", member.address, title=_identity(member)),
            tag("small", member.role, class_="narrow"),
        ),
        member.role,
        tag("span", mark("warn" if late else each.mark), member.state, class_="state", title=member.reason),
        tag("span", f"{'> ' if each.was_so else ''}{since}", title=f"{'before ' * each.was_so}{clock(each.since)}"),
        count(member.epoch),
        count(member.written_offset),
        count(member.flushed_offset),
        count(member.confirmed_offset),
        tag("span", most + size(each.lag_bytes), class_="late" if late or each.is_last_word else None)
        if each.lag_bytes is not None
        else UNKNOWN,
        most + seconds(each.lag_seconds) if each.lag_seconds is not None else UNKNOWN,
        _catch_up_time(each),
        rate(member.rate_bytes_per_second),
    ]


def _identity(member: Member) -> str | None:
    """The identity of a member, for a tooltip."""
    if member.member_id is None:
        return None
    made = f", made {day_and_clock(member.made_ms / 1000)}" if member.made_ms else ""
    return f"member {member.member_id}{made}" + (f" at {member.made_address}" if member.made_address else "")


def _catch_up_time(each: MemberSnapshot) -> str:
    if each.member.role != "slave":
        return UNKNOWN
    if each.member.state not in FOLLOWING:
        return "not now"
    if each.lag_bytes is None:
        return UNKNOWN
    if not is_behind(each):
        return "level"
    return end_of(each).removeprefix("caught up in ").removeprefix("and it ").removeprefix("it ")


def issues_list(snapshot: ClusterSnapshot) -> Markup:
    """Issues, each with the command that repairs or explains it; notes are folded."""
    issues = [each for each in snapshot.findings if each.level is not Level.NOTE]
    notes = [each for each in snapshot.findings if each.level is Level.NOTE]
    parts = [tag("ul", [_issue(each, snapshot) for each in issues], class_="issues")] if issues else []
    if not issues:
        parts.append(tag("p", mark("ok"), "Nothing to mend.", class_="quiet nothing"))
    if snapshot.notes:
        parts.append(tag("ul", [tag("li", mark("none"), each) for each in snapshot.notes], class_="notes"))
    if notes:
        summary = tag("summary", counted(len(notes), "note", "notes"))
        parts.append(tag("details", summary, tag("ul", [_issue(each, snapshot) for each in notes], class_="issues")))
    return join(parts)


def _issue(each: Finding, snapshot: ClusterSnapshot) -> Markup:
    fix = tag("span", f"{each.fix[0].upper()}{each.fix[1:]}", class_="fix") if each.fix else None
    text = tag("span", tag("span", f"{named(each.what, snapshot.names).rstrip('.')}."), fix, class_="issue-text")
    return tag("li", mark(LEVEL_MARKS[each.level], label=True), text, command(command_of(each, snapshot)))


def command(text: str) -> Markup:
    """A command to copy; without JavaScript it can be selected."""
    button = tag("button", "Copy", type="button", class_="copy needs-js", data_copy=text, aria_label=f"Copy: {text}")
    return tag("span", tag("code", text), button, class_="command")


def named(text: str, names: Mapping[str, str]) -> str:
    """The text with members' names for their addresses."""
    for address, name in names.items():
        text = text.replace(address, name)
    return text


def events_list(events: Sequence[Event], snapshot: ClusterSnapshot) -> Markup:
    """The newest first."""
    if not events:
        return tag("p", "Nothing has changed since the dashboard started.", class_="quiet")
    names = snapshot.names
    return tag(
        "ol",
        [_event(each, names) for each in events[:EVENTS_SHOWN]],
        class_="events",
        tabindex=0,
        aria_label="Events, the newest first",
    )


def _event(each: Event, names: Mapping[str, str]) -> Markup:
    time = tag("time", clock(each.at), datetime=day_and_clock(each.at).replace(" ", "T"), title=day_and_clock(each.at))
    return tag(
        "li", time, mark(each.mark, label=True), tag("span", tag("b", each.subject), " ", named(each.text, names))
    )


def groups_table(report: LagReport | None) -> Markup:
    """Lag of consumer groups."""
    columns = (("Group", ""), ("Topic", ""), ("Lag", "number"), ("Behind", "number"), ("State", ""))
    rows = sorted(report.topics, key=lambda each: -(each.lag_messages or 0)) if report else []
    empty = (
        "No consumer group has offsets in any topic."
        if report and not report.silent
        else "Not known: brokers do not answer."
    )
    drawn = table("Consumer groups", columns, [_group_row(each) for each in rows], empty)
    silent = [
        tag("p", f"{each} does not report everything.", class_="quiet") for each in (report.silent if report else ())
    ]
    return join(drawn, silent)


GROUP_MARKS: dict[str, Mark] = {"level": "ok", "behind": "warn", "no consumer": "warn", "lost": "bad", "ahead": "bad"}


def _group_row(each: TopicLag) -> list[object]:
    state = tag("span", mark(GROUP_MARKS.get(each.state, "none")), each.state, class_="state")
    lag = f"{count(each.lag_messages)} msg" if each.lag_messages is not None else UNKNOWN
    return [each.group, each.topic, lag, seconds(each.lag_seconds), state]

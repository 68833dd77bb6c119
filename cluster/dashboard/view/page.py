"""The page: its sections, each by itself for the stream of changes, and all of them in a document."""

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from twinlog.cluster.dashboard.model.events import Event
from twinlog.cluster.dashboard.model.snapshot import ClusterSnapshot, GroupSnapshot, Mark
from twinlog.cluster.dashboard.model.verdict import PageVerdict, verdict_of
from twinlog.cluster.dashboard.view.drawings import legend, offset_bars, picture
from twinlog.cluster.dashboard.view.html import Markup, definitions, facts, join, mark, tag
from twinlog.cluster.dashboard.view.roles import role_dialog
from twinlog.cluster.dashboard.view.tables import events_list, groups_table, issues_list, members_table
from twinlog.cluster.observe.consumption import LagReport
from twinlog.cluster.observe.elections import GroupFailover
from twinlog.cluster.observe.in_sync import change_text, etcd_text
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.text import clock, day_and_clock, seconds
from twinlog.store.util.text import counted

CHARTS = (
    ("lag_bytes", "Lag", "not yet acknowledged by slaves"),
    ("lag_seconds", "Behind", "age of the oldest such byte"),
    ("ack", "Acknowledged in", "wait of producers, last minute"),
    ("rate", "Written", "into the masters' logs"),
)


@frozen(kw_only=True)
class PageState:
    """All that the page shows besides messages."""

    snapshot: ClusterSnapshot
    events: tuple[Event, ...] = ()
    lag: LagReport | None = None
    audit: Markup = field(default=Markup(""))
    topics: tuple[str, ...] = ()
    can_change: bool = False


def sections(state: PageState) -> dict[str, Markup]:
    """The inside of everything that changes, by its element's id."""
    snapshot = state.snapshot
    return {
        "verdict": verdict_section(verdict_of(snapshot), snapshot),
        "issues": issues_list(snapshot),
        "picture": join([_group(each, snapshot) for each in snapshot.groups]),
        "members": members_table(snapshot),
        "offsets": join([offset_bars(each) for each in snapshot.groups], legend(snapshot) if snapshot.groups else None),
        "events": events_list(state.events, snapshot),
        "groups": groups_table(state.lag),
        "audit": state.audit,
    }


def _group(group: GroupSnapshot, snapshot: ClusterSnapshot) -> Markup:
    caption = tag("figcaption", group.name) if len(snapshot.groups) > 1 else None
    return join(tag("figure", caption, picture(group)), policy_lines(group))


def policy_lines(group: GroupSnapshot) -> Markup:
    """The group's acknowledgement policy, in a few lines."""
    total = len(group.members)
    policy = next((each.member.ack_policy for each in group.masters if each.member.ack_policy), None)
    rows: list[tuple[str, object]] = [("Group", group.name), ("SEND_OK says", policy)]
    if group.in_sync is not None:
        rows += _in_sync(group.in_sync)
    elif group.acks_needed is not None:
        rows.append(("A message needs", f"{group.acks_needed} of {counted(total, 'member', 'members')}"))
        rows.append(("A failover needs", counted(max(1, total - group.acks_needed + 1), "promise", "promises")))
    if group.failover is not None:
        rows.append(("It is begun", _begun_by(group.failover)))
    return facts(rows)


def _in_sync(found: InSyncSet) -> list[tuple[str, object]]:
    """Lines on the in-sync set and etcd: a word and a mark, never colour alone."""
    size, is_small = len(found.in_sync), len(found.in_sync) < found.acks_configured
    of_set: Mark = "bad" if found.is_one_copy else "warn" if is_small or found.outside else "ok"
    return [
        ("A message needs", f"{found.acks_needed} of the {size} in sync"),
        ("A failover needs", counted(found.promises_needed, "promise", "promises") + " of these"),
        ("In sync", join(mark(of_set), found.text)),
        ("Its record", change_text(found)),
        ("etcd", join(mark("warn" if found.without_etcd else "ok"), etcd_text(found))),
    ]


def _begun_by(failover: GroupFailover) -> str:
    """A line on who begins a failover, and who would be elected."""
    if failover.disagreeing:
        return "by nobody: the members disagree on autoFailover"
    if failover.mode == "off":
        return "by a person: twinlog failover"
    if failover.next is not None:
        return f"by the group itself; {failover.next} would be next"
    return f"by the group itself{f'; nobody could be elected now: {failover.nobody}' if failover.nobody else ''}"


def verdict_section(verdict: PageVerdict, snapshot: ClusterSnapshot) -> Markup:
    """The one line."""
    lines = [tag("p", each) for each in verdict.details]
    if verdict.since is not None:
        before = "since before" if verdict.was_so else "since"
        lasted = f"{before} {clock(verdict.since)}, for {seconds(max(0.0, snapshot.at - verdict.since))}"
        lines.insert(0, tag("p", lasted, class_="since"))
    return tag(
        "div",
        mark(verdict.mark),
        tag("div", tag("p", _unbroken(verdict.headline, snapshot), class_="headline", id="headline"), lines),
        class_=f"verdict {verdict.mark}",
    )


def _unbroken(text: str, snapshot: ClusterSnapshot) -> Markup:
    """No line ends within a member's name, or between a number and its unit."""
    names = {name for group in snapshot.groups for name in (group.name, *(each.member.name for each in group.members))}
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    parts = re.split(rf"({words + '|' if words else ''}[0-9.]+ (?:k?B|[MGT]B|s|min|h)\b)", text)
    return join([tag("span", part, class_="whole") if i % 2 else part for i, part in enumerate(parts)])


def document(state: PageState, peek: Markup, found: Markup) -> Markup:
    """The whole page."""
    parts = sections(state)
    title = verdict_of(state.snapshot).headline
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · twinlog"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/vendor/uPlot.min.css"),
        tag("link", rel="stylesheet", href="/static/dashboard.css"),
        tag("link", rel="stylesheet", href="/static/parts.css"),
        tag("script", src="/static/vendor/uPlot.iife.min.js", defer=True),
        tag("script", src="/static/main.js", type="module"),
    )
    body = tag(
        "body",
        tag("a", "To the table of members", href="#members", class_="skip"),
        definitions(),
        _header(state),
        tag("main", _main(parts, state, peek, found)),
        role_dialog(state.snapshot, can_change=state.can_change),
    )
    return Markup("<!DOCTYPE html>" + tag("html", head, body, lang="en"))


def _header(state: PageState) -> Markup:
    where = ", ".join(state.snapshot.namesrv) or "no name server"
    live = tag("span", f"as of {day_and_clock(state.snapshot.at)}", id="live", class_="live")
    return tag("header", tag("h1", "twinlog"), tag("p", "name server ", tag("b", where), class_="where"), live)


def _main(parts: Mapping[str, Markup], state: PageState, peek: Markup, found: Markup) -> Sequence[Markup]:
    change = tag("button", "Change the master…", type="button", id="open-roles", class_="needs-js")
    no_script = tag("noscript", tag("p", "Charts and role changes need JavaScript; the tables do not.", class_="quiet"))
    charts = [
        tag(
            "figure",
            tag("figcaption", tag("b", title), " ", tag("span", words), tag("output", id=f"now-{name}")),
            tag("div", id=f"chart-{name}", class_="plot", role="img", aria_label=f"{title}: {words}, last 15 minutes"),
            class_="chart",
        )
        for name, title, words in CHARTS
    ]
    return (
        tag("section", parts["verdict"], id="verdict", aria_label="PageVerdict"),
        tag("p", id="announce", role="status", class_="unseen"),
        _card("Issues", "issues", parts, "issues-card"),
        tag(
            "div",
            _card("Cluster", "picture", parts, "cluster-card", change),
            tag("div", _card("Members", "members", parts), _card("Logs", "offsets", parts), class_="stack"),
            class_="row first",
        ),
        tag("section", tag("h2", "Last 15 minutes"), no_script, tag("div", charts, class_="charts"), class_="card"),
        tag(
            "div",
            _card("Events", "events", parts),
            _card("Consumers", "groups", parts),
            _card("Last audit", "audit", parts),
            class_="row three",
        ),
        tag(
            "section",
            tag("h2", "Messages"),
            peek,
            tag("div", found, id="found", aria_live="polite"),
            class_="card",
            id="messages",
        ),
    )


def _card(title: str, name: str, parts: Mapping[str, Markup], class_: str = "", extra: Markup | None = None) -> Markup:
    head = tag("div", tag("h2", title), extra, class_="card-head")
    return tag("section", head, tag("div", parts[name], id=name), class_=f"card {class_}".rstrip())

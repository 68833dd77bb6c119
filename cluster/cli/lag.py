"""`twinlog lag`: how far consumer groups are behind."""

from typing import TYPE_CHECKING

import click

from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.options import document_option, examples, namesrv_option, watch_option
from twinlog.cluster.cli.common.pages import Block, Page, answer, silent_notes

if TYPE_CHECKING:
    from twinlog.cluster.cli.common.render import Column
    from twinlog.cluster.observe.consumption import LagReport


@click.command(
    "lag",
    short_help="Show how far consumer groups are behind.",
    epilog=examples(
        "twinlog lag",
        "twinlog lag audit -w",
        "twinlog lag -o json | jq '.topics[] | select(.lag_messages > 1000) | .group'",
    ),
)
@click.argument("group", required=False, shell_complete=complete.groups)
@namesrv_option
@watch_option
@document_option("twinlog.cluster.observe.consumption:LagReport")
def lag(group: str | None, namesrv: str, watch_seconds: float | None, fmt: str) -> None:
    """Show what each consumer group has not read yet, by topic; with GROUP also by queue, and which client reads it.

    LAG counts messages, BEHIND is the age of the oldest of them. With -w TREND tells how the lag changes. States: level, behind,
    new (it has not said yet how far it is), lost (messages were deleted before it read them), ahead (it stands behind the end
    of the queue: seek it), no consumer, not subscribed, broadcast (each client keeps its own place: nobody else knows it).
    """

    def fold(before: "LagReport | None", now: "LagReport") -> "LagReport":
        from twinlog.cluster.observe.consumption import with_change

        return with_change(before, now)

    answer(
        namesrv,
        fmt,
        lambda admin: admin.groups.lag(group),
        lambda found: _page(found, with_trend=watch_seconds is not None),
        watch_seconds=watch_seconds,
        fold=fold,
    )


def topic_columns(*, with_group: bool, with_trend: bool = False) -> "list[Column]":
    """One line for each group and topic."""
    from twinlog.cluster.cli.common.render import Column, count, seconds

    columns = [Column("GROUP", lambda r: r.group)] if with_group else []
    columns += [
        Column("TOPIC", lambda r: r.topic),
        Column("QUEUES", lambda r: r.queues, right=True, spare=2),
        Column("CLIENTS", lambda r: r.clients, right=True, spare=1),
        Column("LAG", lambda r: r.lag_messages, count, right=True),
        Column("BEHIND", lambda r: r.lag_seconds, seconds, right=True),
    ]
    columns += [Column("TREND", lambda r: r.change_per_second, trend, right=True)] if with_trend else []
    return [*columns, Column("STATE", lambda r: r.state)]


def trend(change_per_second: float) -> str:
    """An arrow and a rate: ↑ grows, ↓ shrinks."""
    if abs(change_per_second) < 0.05:
        return "→ 0/s"
    return f"{'↑' if change_per_second > 0 else '↓'} {change_per_second:+.1f}/s"


def _page(found: "LagReport", *, with_trend: bool) -> Page:
    from twinlog.cluster.cli.common.render import Column, count, seconds

    empty = "No group has a place in any topic."
    topics = Block(None, topic_columns(with_group=True, with_trend=with_trend), found.topics, empty)
    if not found.queues:
        return Page((topics,), silent_notes(found.silent))
    columns = [
        Column("TOPIC", lambda q: q.topic),
        Column("BROKER", lambda q: q.broker, spare=2),
        Column("QUEUE", lambda q: q.queue_id, right=True),
        Column("READ TO", lambda q: q.committed_offset, count, right=True),
        Column("FIRST", lambda q: q.min_offset, count, right=True, wide=True),
        Column("NEXT", lambda q: q.max_offset, count, right=True, spare=3),
        Column("LAG", lambda q: q.lag_messages, count, right=True),
        Column("BEHIND", lambda q: q.lag_seconds, seconds, right=True),
        Column("STATE", lambda q: q.state),
        Column("CLIENT", lambda q: q.consumer, spare=1),
    ]
    topics = Block("in all", topic_columns(with_group=True, with_trend=with_trend), found.topics)
    return Page((Block(found.topics[0].group, columns, found.queues), topics), silent_notes(found.silent))

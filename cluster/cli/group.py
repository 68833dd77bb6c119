"""`twinlog group` and `twinlog lag`: shows, creates, changes and deletes consumer groups, and shows their lag."""

from typing import Any

import click

from twinlog.cluster.admin.groups import GroupChange, GroupDetail, GroupList
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import (
    change_options,
    confirm,
    document_option,
    dry_run_option,
    namesrv_option,
    need_yes,
    together,
    watch_option,
)
from twinlog.cluster.cli.common.pages import Block, Page, answer, preview, show, silent_notes
from twinlog.cluster.cli.common.render import Column, count, yes_no
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.group_offsets import clone, reset, seek
from twinlog.cluster.cli.group_secret import secret_group
from twinlog.cluster.cli.topic import arrow, broker_option, cluster_option, messages_text
from twinlog.cluster.observe.consumption import LagReport, with_change
from twinlog.cluster.remoting.names import group_fault
from twinlog.cluster.text import seconds

group_argument = click.argument("group", shell_complete=complete.groups)


@click.group(
    "group",
    cls=InOrder,
    epilog=examples(
        "twinlog group list", "twinlog group show audit", "twinlog group reset audit orders --to 2h --dry-run"
    ),
)
def group_group() -> None:
    """Show, create, change and delete consumer groups, and move their offsets; and the secret of a replication group."""


@group_group.command(
    "list",
    short_help="List the consumer groups.",
    epilog=examples(
        "twinlog group list", "twinlog group list -w 5", "twinlog group list -o tsv | sort -t$'\\t' -k5 -n"
    ),
)
@namesrv_option
@watch_option
@document_option(GroupList)
@click.option("--all", "all_groups", is_flag=True, help="Include the internal groups of brokers.")
def list_groups(namesrv: str, fmt: str, watch_seconds: float | None, all_groups: bool) -> None:
    """List the consumer groups with their connected clients and their lag over all topics.

    LAG is the number of messages that a group has not read yet. In the state `no consumer` a group has offsets, but no client.
    """
    answer(
        namesrv,
        fmt,
        lambda admin: admin.groups.summaries(all_groups=all_groups),
        _list_page,
        watch_seconds=watch_seconds,
    )


def _list_page(found: GroupList) -> Page:
    columns = [
        Column("GROUP", lambda g: g.name),
        Column("CLIENTS", lambda g: g.clients, right=True),
        Column("MODEL", lambda g: g.message_model),
        Column("TOPICS", lambda g: g.topics, right=True),
        Column("LAG", lambda g: g.lag_messages, count, right=True),
        Column("STATE", lambda g: g.state),
    ]
    empty = "No groups. The first consumer creates one: twinlog consume TOPIC --group NAME"
    return Page((Block(None, columns, found.groups, empty),), silent_notes(found.silent))


@group_group.command(
    "show",
    short_help="Show a group: clients, lag, settings.",
    epilog=examples("twinlog group show audit", "twinlog group show audit -o json | jq '.clients[].address'"),
)
@group_argument
@namesrv_option
@watch_option
@document_option(GroupDetail)
def show_group(group: str, namesrv: str, fmt: str, watch_seconds: float | None) -> None:
    """Show the connected clients of GROUP, their subscriptions, the group's lag, and its settings on each broker."""
    answer(namesrv, fmt, lambda admin: admin.groups.show(group), _show_page, watch_seconds=watch_seconds)


def _show_page(found: GroupDetail) -> Page:
    held: dict[str | None, int] = {}
    for queue in found.queues:
        held[queue.consumer] = held.get(queue.consumer, 0) + 1
    clients = [
        Column("CLIENT", lambda c: c.client_id),
        Column("ADDRESS", lambda c: c.address),
        Column("LANGUAGE", lambda c: c.language.lower()),
        Column("VERSION", lambda c: c.version, right=True, wide=True),
        Column("QUEUES", lambda c: held.get(c.client_id), right=True),
    ]
    subscriptions = [Column("TOPIC", lambda s: s[0]), Column("WANTS", lambda s: s[1])]
    settings = [
        Column("BROKER", lambda s: s.broker),
        Column("MAY CONSUME", lambda s: yes_no(s.consume)),
        Column("RETRIES", lambda s: s.retry_max, right=True),
        Column("RETRY QUEUES", lambda s: s.retry_queues, right=True),
        Column("BROADCAST", lambda s: yes_no(s.broadcast)),
        Column("FROM FIRST", lambda s: yes_no(s.consume_from_min), wide=True),
        Column("SLOW READS FROM", lambda s: s.slow_read_broker_id, right=True, wide=True),
    ]
    model = f", {found.message_model}" if found.message_model else ""
    blocks = [Block(f"{found.name}{model}", clients, found.clients, "No client is connected.")]
    if found.subscriptions:
        blocks.append(Block("subscribes to", subscriptions, sorted(found.subscriptions.items())))
    blocks.append(Block("lag", topic_columns(with_group=False), found.topics, "It has no offsets in any topic."))
    blocks.append(Block("settings", settings, found.settings, "No broker has settings for it."))
    return Page(tuple(blocks))


_settings_options = together(
    click.option(
        "--retry-max",
        "retry_times_max",
        type=click.IntRange(-1),
        help="Number of redeliveries before a message becomes a dead letter.",
    ),
    click.option(
        "--retry-queues", "retry_queues", type=click.IntRange(1, 65536), help="Number of queues of its retry topic."
    ),
    click.option("--consume/--no-consume", "consume_enable", default=None, help="Permit or forbid consuming."),
    click.option(
        "--broadcast/--no-broadcast",
        "consume_broadcast_enable",
        default=None,
        help="Permit or forbid broadcasting.",
    ),
    click.option(
        "--from-first/--no-from-first",
        "consume_from_min_enable",
        default=None,
        help="Permit or forbid starting at the first message.",
    ),
    broker_option,
    cluster_option,
    dry_run_option,
    document_option(GroupChange),
)


@group_group.command(
    "create",
    short_help="Create a consumer group.",
    epilog=examples("twinlog group create audit", "twinlog group create audit --retry-max 3 --no-broadcast"),
)
@click.argument("group")
@namesrv_option
@_settings_options
def create(group: str, namesrv: str, **options: Any) -> None:
    """Create GROUP on every broker, or on some of them. Needed only with autoCreateSubscriptionGroup=false."""
    if fault := group_fault(group):
        raise click.UsageError(f"GROUP {group!r}: {fault}")
    _apply(group, namesrv, "prepare_create", **options)


@group_group.command(
    "update",
    short_help="Change the settings of a group.",
    epilog=examples("twinlog group update audit --retry-max 3", "twinlog group update audit --no-consume --dry-run"),
)
@group_argument
@namesrv_option
@_settings_options
def update(group: str, namesrv: str, **options: Any) -> None:
    """Change GROUP on every broker that knows it, or on some of them. Other settings are kept."""
    _apply(group, namesrv, "prepare_update", **options)


def _apply(
    group: str,
    namesrv: str,
    prepare: str,
    *,
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    fmt: str,
    **settings: Any,
) -> None:
    given = {name: value for name, value in settings.items() if value is not None}
    if prepare == "prepare_update" and not given:
        raise click.UsageError("nothing to change: add --retry-max, --retry-queues, --no-consume or another")

    async def work(admin: Any) -> GroupChange:
        planned: GroupChange = await getattr(admin.groups, prepare)(group, given, brokers, cluster)
        return planned if dry_run else await admin.groups.apply(planned, given)

    show(run_admin(namesrv, work), fmt, change_page)


@group_group.command(
    "delete",
    short_help="Delete a consumer group.",
    epilog=examples("twinlog group delete audit --dry-run", "twinlog group delete audit --yes --keep-offsets"),
)
@group_argument
@namesrv_option
@click.option("--keep-offsets", is_flag=True, help="Keep its offsets, for a new group of that name.")
@click.option("--dead-letters", "with_dead_letters", is_flag=True, help="Delete its dead-letter topic, too.")
@change_options
@document_option(GroupChange)
def delete(
    group: str, namesrv: str, keep_offsets: bool, with_dead_letters: bool, dry_run: bool, yes: bool, fmt: str
) -> None:
    """Delete GROUP, its offsets and its retry topic from every broker. Refused (exit status 4) while consumers are connected."""
    need_yes(yes or dry_run, "deletes a group")
    planned = run_admin(
        namesrv,
        lambda admin: admin.groups.prepare_delete(
            group, with_offsets=not keep_offsets, with_dead_letters=with_dead_letters
        ),
    )
    if not dry_run:
        preview(planned, fmt, change_page, yes=yes)
        confirm(group, "group", f"{group} will be deleted", yes)
        planned = run_admin(namesrv, lambda admin: admin.groups.delete(planned))
    show(planned, fmt, change_page)


def change_page(change: GroupChange) -> Page:
    """Return the settings before and after on each broker."""

    def both(name: str) -> Any:
        return lambda each: arrow(_field(each.before, name), _field(each.after, name))

    columns = [
        Column("BROKER", lambda each: each.broker),
        Column("ADDRESS", lambda each: each.address, spare=1),
        Column("MAY CONSUME", both("consume")),
        Column("RETRIES", both("retry_max")),
        Column("RETRY QUEUES", both("retry_queues")),
        Column("BROADCAST", both("broadcast")),
        Column("FROM FIRST", both("consume_from_min"), wide=True),
    ]
    notes = [f"its topic {topic} is deleted, too" for topic in change.topics]
    if change.topic_messages != 0:
        notes.append(f"{messages_text(change.topic_messages)} are in these topics")
    notes += [
        f"{each.lag_messages} messages of {each.topic} are not read yet" for each in change.lag if each.lag_messages
    ]
    if change.with_offsets:
        notes.append("its offsets are deleted, too")
    return Page((Block(change.name, columns, change.changes),), tuple(notes), nothing_changed=not change.done)


def _field(settings: Any, name: str) -> Any:
    value = getattr(settings, name) if settings is not None else None
    return yes_no(value) if isinstance(value, bool) else value


for command in (reset, seek, clone, secret_group):
    group_group.add_command(command)


@click.command(
    "lag",
    epilog=examples(
        "twinlog lag",
        "twinlog lag audit -w",
        "twinlog lag -o json | jq '.topics[] | select(.lag_messages > 1000) | .group'",
    ),
)
@click.argument("group", required=False, shell_complete=complete.groups)
@namesrv_option
@watch_option
@document_option(LagReport)
def lag(group: str | None, namesrv: str, watch_seconds: float | None, fmt: str) -> None:
    """Show the lag of each consumer group by topic; with GROUP also by queue, with the client of each queue.

    LAG is the number of unread messages, BEHIND the age of the oldest. With -w, TREND shows how the lag changes. States: level,
    behind, new (no offset committed yet), lost (messages were deleted before it read them), ahead (its offset is beyond the end
    of the queue: use group seek), no consumer, not subscribed, broadcast (each client keeps its own offsets).
    """
    answer(
        namesrv,
        fmt,
        lambda admin: admin.groups.lag(group),
        lambda found: _page(found, with_trend=watch_seconds is not None),
        watch_seconds=watch_seconds,
        fold=with_change,
    )


def topic_columns(*, with_group: bool, with_trend: bool = False) -> list[Column]:
    """Return the columns of a table with one line for each group and topic."""
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
    """Format a change as an arrow and a rate: ↑ grows, ↓ shrinks."""
    if abs(change_per_second) < 0.05:
        return "→ 0/s"
    return f"{'↑' if change_per_second > 0 else '↓'} {change_per_second:+.1f}/s"


def _page(found: LagReport, *, with_trend: bool) -> Page:
    columns = topic_columns(with_group=True, with_trend=with_trend)
    if not found.queues:
        topics = Block(None, columns, found.topics, "No group has offsets in any topic.")
        return Page((topics,), silent_notes(found.silent))
    queues = [
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
    total = Block("total", columns, found.topics)
    return Page((Block(found.topics[0].group, queues, found.queues), total), silent_notes(found.silent))

"""`twinlog topic`: shows, creates, changes and deletes topics."""

from typing import Any

import click

from twinlog.cluster.admin.topics import TopicChange, TopicDetail, TopicList
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.errors import REFUSED, CliError
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import (
    change_options,
    confirm,
    document_option,
    dry_run_option,
    namesrv_option,
    need_yes,
    watch_option,
)
from twinlog.cluster.cli.common.pages import Block, Page, answer, preview, show
from twinlog.cluster.cli.common.render import Column, count, yes_no
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.remoting.names import topic_fault
from twinlog.cluster.text import moment

QUEUES = click.IntRange(1, 65536)
PERMS = {"RW": 6, "R": 4, "W": 2}

topic_argument = click.argument("topic", shell_complete=complete.topics)
broker_option = click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="NAME",
    shell_complete=complete.brokers,
    help="Only on this broker group; repeatable.",
)
cluster_option = click.option("--cluster", metavar="NAME", help="Only on the brokers of this cluster.")


@click.group(
    "topic",
    cls=InOrder,
    epilog=examples("twinlog topic list", "twinlog topic show orders", "twinlog topic create orders"),
)
def topic_group() -> None:
    """Show, create, change and delete topics."""


@topic_group.command(
    "list",
    short_help="List the topics.",
    epilog=examples("twinlog topic list", "twinlog topic list --all -o json | jq '.topics[].name'"),
)
@namesrv_option
@watch_option
@document_option(TopicList)
@click.option("--all", "all_topics", is_flag=True, help="Include the internal topics of brokers.")
def list_topics(namesrv: str, fmt: str, watch_seconds: float | None, all_topics: bool) -> None:
    """List the topics with their queues, permissions and number of messages.

    MESSAGES counts those that can still be read. FIRST and NEXT are queue offsets, added up over the queues.
    """

    async def ask(admin: Any) -> TopicList:
        return TopicList(await admin.topics.summaries(all_topics=all_topics))

    answer(namesrv, fmt, ask, _list_page, watch_seconds=watch_seconds)


def _list_page(found: TopicList) -> Page:
    columns = [
        Column("TOPIC", lambda t: t.name),
        Column("QUEUES", lambda t: t.write_queues, right=True),
        Column("READ QUEUES", lambda t: t.read_queues, right=True, wide=True),
        Column("PERM", lambda t: t.perm),
        Column("BROKERS", lambda t: ",".join(t.brokers), spare=1),
        Column("FIRST", lambda t: t.min_offset_sum, count, right=True, wide=True),
        Column("NEXT", lambda t: t.max_offset_sum, count, right=True, wide=True),
        Column("MESSAGES", lambda t: t.messages, count, right=True),
        Column("LAST MESSAGE", lambda t: t.last_update_ms, moment, spare=2),
    ]
    return Page(
        (Block(None, columns, found.topics, "No topics. The first message creates one: twinlog send TOPIC BODY"),)
    )


@topic_group.command(
    "show",
    short_help="Show a topic with its queues and consumer groups.",
    epilog=examples("twinlog topic show orders", "twinlog topic show orders -w", "twinlog topic show orders -o tsv"),
)
@topic_argument
@namesrv_option
@watch_option
@document_option(TopicDetail)
def show_topic(topic: str, namesrv: str, fmt: str, watch_seconds: float | None) -> None:
    """Show the queues of TOPIC with their offsets, its settings on each broker, and the groups that read it.

    FIRST is the queue offset of the oldest message that can be read, NEXT that of the next message.
    """
    answer(namesrv, fmt, lambda admin: admin.topics.show(topic), _show_page, watch_seconds=watch_seconds)


def _show_page(found: TopicDetail) -> Page:
    queues = [
        Column("BROKER", lambda q: q.broker),
        Column("QUEUE", lambda q: q.queue_id, right=True),
        Column("FIRST", lambda q: q.min_offset, count, right=True),
        Column("NEXT", lambda q: q.max_offset, count, right=True),
        Column("MESSAGES", lambda q: q.messages, count, right=True),
        Column("LAST MESSAGE", lambda q: q.last_update_ms, moment),
    ]
    brokers = [
        Column("BROKER", lambda b: b.broker),
        Column("ADDRESS", lambda b: b.address, spare=1),
        Column("READ QUEUES", lambda b: b.read_queues, right=True),
        Column("WRITE QUEUES", lambda b: b.write_queues, right=True),
        Column("PERM", lambda b: b.perm),
        Column("ORDER", lambda b: None if b.order is None else yes_no(b.order), wide=True),
    ]
    readers = [
        Column("GROUP", lambda g: g.group),
        Column("CLIENTS", lambda g: g.clients, right=True),
        Column("MODEL", lambda g: g.message_model),
        Column("LAG", lambda g: g.lag_messages, count, right=True),
    ]
    return Page(
        (
            Block(found.name, queues, found.queues, "No broker reported the offsets of its queues."),
            Block("settings", brokers, found.brokers),
            Block("read by", readers, found.consumers, "No group reads it or has read it."),
        )
    )


@topic_group.command(
    "create",
    short_help="Create a topic.",
    epilog=examples(
        "twinlog topic create orders",
        "twinlog topic create orders --queues 16 --broker broker-a --broker broker-b",
        "twinlog topic create archive --perm R --dry-run",
    ),
)
@click.argument("topic")
@namesrv_option
@click.option("--queues", type=QUEUES, default=8, show_default=True, help="Number of queues on each broker.")
@click.option(
    "--perm", type=click.Choice(tuple(PERMS)), default="RW", show_default=True, help="Permissions: read, write or both."
)
@broker_option
@cluster_option
@dry_run_option
@document_option(TopicChange)
def create(
    topic: str,
    namesrv: str,
    queues: int,
    perm: str,
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    fmt: str,
) -> None:
    """Create TOPIC on every broker, or on some of them. It can be used when the command has ended."""
    if fault := topic_fault(topic):
        raise click.UsageError(fault.replace("The specified topic", f"TOPIC {topic!r}"))

    async def work(admin: Any) -> TopicChange:
        wanted = TopicConfig(topic, queues, queues, PERMS[perm])
        planned: TopicChange = await admin.topics.prepare_create(wanted, brokers, cluster)
        return planned if dry_run else await admin.topics.apply(planned)

    show(run_admin(namesrv, work), fmt, change_page)


@topic_group.command(
    "update",
    short_help="Change queues or permissions of a topic.",
    epilog=examples("twinlog topic update orders --queues 16", "twinlog topic update orders --perm R --dry-run"),
)
@topic_argument
@namesrv_option
@click.option("--queues", type=QUEUES, help="Number of queues on each broker, for reading and writing.")
@click.option("--read-queues", type=QUEUES, help="Number of queues that are read.")
@click.option("--write-queues", type=QUEUES, help="Number of queues that are written.")
@click.option("--perm", type=click.Choice(tuple(PERMS)), help="Permissions: read, write or both.")
@broker_option
@cluster_option
@change_options
@document_option(TopicChange)
def update(
    topic: str,
    namesrv: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    yes: bool,
    fmt: str,
) -> None:
    """Change TOPIC on every broker that has it, or on some of them.

    To reduce the queues, reduce --write-queues first, and --read-queues when the other queues have been read. Confirmation is
    required if messages would be left in queues that are not read any more.
    """
    wanted = {"read_queues": read_queues or queues, "write_queues": write_queues or queues}
    if not any((queues, read_queues, write_queues, perm)):
        raise click.UsageError("nothing to change: add --queues, --read-queues, --write-queues or --perm")

    async def prepare(admin: Any) -> TopicChange:
        number = PERMS[perm] if perm else None
        planned: TopicChange = await admin.topics.prepare_update(
            topic, **wanted, perm=number, brokers=brokers, cluster=cluster
        )
        return planned

    planned = run_admin(namesrv, prepare)
    if not dry_run:
        if planned.hidden_messages != 0:
            hidden = messages_text(planned.hidden_messages)
            need_yes(yes, f"hides {hidden}")
            confirm(topic, "topic", f"{hidden} lie in queues that will not be read any more", yes)
        planned = run_admin(namesrv, lambda admin: admin.topics.apply(planned))
    show(planned, fmt, change_page)


@topic_group.command(
    "delete",
    short_help="Delete a topic.",
    epilog=examples("twinlog topic delete orders --dry-run", "twinlog topic delete orders --yes"),
)
@topic_argument
@namesrv_option
@click.option("--although-read", is_flag=True, help="Delete it even if consumers are or may be connected.")
@change_options
@document_option(TopicChange)
def delete(topic: str, namesrv: str, although_read: bool, dry_run: bool, yes: bool, fmt: str) -> None:
    """Delete TOPIC and its messages from every broker and name server. Groups keep their offsets.

    Refused (exit status 4) while consumers of it are connected, who would not notice it, or if that is unknown.
    """
    need_yes(yes or dry_run, "deletes a topic with its messages")
    planned = run_admin(namesrv, lambda admin: admin.topics.prepare_delete(topic))
    online = [each.group for each in planned.consumers if each.clients]
    if not dry_run:
        if online and not although_read:
            raise CliError(
                f"{topic} was not deleted.",
                f"Consumers of {', '.join(online)} are connected and read it.",
                "Stop them first, or add --although-read. See them with: twinlog topic show " + topic,
                exit_code=REFUSED,
            )
        if planned.silent and not although_read:
            raise CliError(
                f"{topic} was not deleted.",
                f"{', '.join(planned.silent)} did not report its consumers.",
                "See the members with: twinlog list. Or add --although-read",
                exit_code=REFUSED,
            )
        preview(planned, fmt, change_page, yes=yes)
        what = "unknown" if planned.messages is None else planned.messages
        confirm(topic, "topic", f"{topic} and its messages ({what}) will be deleted", yes)
        planned = run_admin(namesrv, lambda admin: admin.topics.delete(planned))
    show(planned, fmt, change_page)


def change_page(change: TopicChange) -> Page:
    """Return the settings before and after on each broker."""
    columns = [
        Column("BROKER", lambda s: s.broker),
        Column("ADDRESS", lambda s: s.address, spare=1),
        Column("READ QUEUES", lambda s: arrow(s.before_read_queues, s.read_queues)),
        Column("WRITE QUEUES", lambda s: arrow(s.before_write_queues, s.write_queues)),
        Column("PERM", lambda s: arrow(s.before_perm, s.perm)),
    ]
    notes = []
    if change.messages is not None:
        notes.append(f"{change.messages} messages {'are gone' if change.done else 'can be read now'}")
    notes += [
        f"the group {each.group} reads it, with {each.clients} clients" for each in change.consumers if each.clients
    ]
    notes += [f"{broker} did not report its consumers" for broker in change.silent]
    if change.hidden_messages != 0:
        notes.append(f"{messages_text(change.hidden_messages)} lie in queues that are not read any more")
    return Page((Block(change.name, columns, change.settings),), tuple(notes), nothing_changed=not change.done)


def messages_text(number: int | None) -> str:
    """Format a number of messages that may be unknown."""
    return "an unknown number of messages" if number is None else f"{number} messages"


def arrow(before: Any, after: Any) -> str:
    """Format a change: `4 -> 8`, `4 -> gone`, or one value if nothing changes or nothing was there before."""
    if before is None or before == after:
        return "-" if after is None else str(after)
    return f"{before} -> {'gone' if after is None else after}"

"""Commands about topics, and `send`."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import click

from cluster.cli.errors import CliError, sentence
from cluster.cli.options import document_option, examples, format_option, namesrv_option, run_admin

if TYPE_CHECKING:
    from cluster.client.producer import OutgoingMessage, SendResult

_SEND_EXAMPLES = (
    'twinlog send orders "hello" --tags TagA --keys k1',
    "twinlog send orders --count 1000 x",
    "jq -c '.[]' orders.json | twinlog send orders --lines --file -",
)


@click.group("topic", epilog=examples("twinlog topic list", "twinlog topic list --all -o json"))
def topic_group() -> None:
    """Look at topics."""


@topic_group.command(
    "list",
    short_help="Show each topic.",
    epilog=examples("twinlog topic list", "twinlog topic list --all -o json"),
)
@namesrv_option
@document_option("cluster.admin:TopicList")
@click.option("--all", "all_topics", is_flag=True, help="Also the topics that brokers make for themselves.")
def list_topics(namesrv: str, fmt: str, all_topics: bool) -> None:
    """Show each topic: its queues, what may be done with it, and how many messages it holds.

    MESSAGES are those that can still be read; FIRST and NEXT are queue offsets, summed over the queues.
    """
    topics = run_admin(namesrv, lambda admin: admin.list_topics(all_topics=all_topics))

    from cluster.cli.render import Column, count, json_answer, moment, table

    if fmt == "json":
        from cluster.admin import TopicList

        json_answer(TopicList(topics))
        return
    columns = [
        Column("TOPIC", lambda t: t.name),
        Column("QUEUES", lambda t: t.write_queues, right=True),
        Column("READ QUEUES", lambda t: t.read_queues, right=True, wide=True),
        Column("PERM", lambda t: t.perm),
        Column("BROKERS", lambda t: ",".join(t.brokers)),
        Column("FIRST", lambda t: t.min_offset_sum, count, right=True, wide=True),
        Column("NEXT", lambda t: t.max_offset_sum, count, right=True, wide=True),
        Column("MESSAGES", lambda t: t.messages, count, right=True),
        Column("LAST MESSAGE", lambda t: t.last_update_ms, moment),
    ]
    table(columns, topics, fmt)
    if not topics and fmt != "tsv":
        click.echo("No topics. A first message makes one: twinlog send TOPIC BODY", err=True)


@click.command("send", epilog=examples(*_SEND_EXAMPLES))
@click.argument("topic")
@click.argument("body", required=False)
@namesrv_option
@format_option
@click.option("--tags", default="", metavar="TAG", help="The message's tag.")
@click.option("--keys", default="", metavar="KEYS", help="Keys to find it by, blanks between them.")
@click.option("--property", "properties", multiple=True, metavar="K=V", help="A property of your own; repeatable.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Deliver later: 1 is 1 s, ... 18 is 2 h.")
@click.option("--count", type=click.IntRange(1), default=1, help="Send it that many times.")
@click.option("--file", "file", type=click.File("rb"), help="Take the body from a file, - is standard input.")
@click.option("--lines", is_flag=True, help="With --file: one message for each line.")
def send(namesrv: str, fmt: str, file: Any, **options: Any) -> None:
    """Send a message and show where it went.

    Each line tells status, topic, broker and queue, queue offset and offsetMsgId. Every status says that the message is
    stored; one other than SEND_OK, that it is not yet as safe as the broker promises, and then the exit status is 1.
    """
    if not options["topic"]:
        raise click.UsageError("TOPIC is empty.")  # A broker would take it for TBW102.
    bodies = _bodies(options.pop("body"), file, options.pop("lines"))
    count = options.pop("count")
    try:
        make = _message_maker(**options)
    except ValueError as error:
        raise click.UsageError(sentence(error)) from error
    report = _SendReport(fmt)

    async def messages() -> "AsyncIterator[OutgoingMessage]":
        for body in bodies:
            for _ in range(count):
                yield make(body)

    run_admin(namesrv, lambda admin: admin.send(messages(), report.show))
    report.finish()


def _bodies(body: str | None, file: Any, lines: bool) -> "list[bytes] | Any":
    if (body is None) == (file is None):
        raise click.UsageError("Give the body as an argument or with --file (- is standard input), one of the two.")
    if body is not None:
        if lines:
            raise click.UsageError("--lines needs --file.")
        return [body.encode()]
    return (line.rstrip(b"\r\n") for line in file) if lines else [file.read()]


def _message_maker(
    topic: str, tags: str, keys: str, properties: tuple[str, ...], delay_level: int
) -> "Callable[[bytes], OutgoingMessage]":
    from cluster.client.producer import OutgoingMessage

    pairs = [text.partition("=") for text in properties]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.UsageError("--property: allowed is K=V.")

    def make(body: bytes) -> OutgoingMessage:
        return OutgoingMessage(
            topic=topic,
            body=body,
            tags=tags,
            keys=keys,
            delay_level=delay_level,
            properties={name: value for name, _, value in pairs},
        )

    make(b"")  # Whatever is wrong with the options shows now.
    return make


class _SendReport:
    """One line for each answer; what is not SEND_OK is told again at the end."""

    def __init__(self, fmt: str) -> None:
        self.fmt = fmt
        self.total = 0
        self.unsafe: dict[str, tuple[int, str]] = {}
        if fmt == "tsv":
            click.echo("status\ttopic\tbroker\tqueue\tqueue_offset\toffset_message_id\tmessage_id")

    def show(self, sent: "SendResult") -> None:
        from cluster.cli.render import json_line, style

        self.total += 1
        status = sent.status.name
        if status != "SEND_OK":
            self.unsafe[status] = (self.unsafe.get(status, (0, ""))[0] + 1, sent.remark or "")
        if self.fmt == "json":
            json_line(_sent_object(sent))
            return
        queue = sent.queue
        ids = (sent.offset_message_id, sent.message_id)
        if self.fmt == "tsv":
            line = (status, queue.topic, queue.broker_name, str(queue.queue_id), str(sent.queue_offset), *ids)
            click.echo("\t".join(line))
            return
        status = style(status, fg="green" if status == "SEND_OK" else "yellow")
        place = f"{queue.topic}  {queue.broker_name} queue {queue.queue_id} offset {sent.queue_offset}"
        own_id = f"  msgId {sent.message_id}" if self.fmt == "wide" else ""
        click.echo(f"{status}  {place}  offsetMsgId {sent.offset_message_id}{own_id}")

    def finish(self) -> None:
        if self.unsafe:
            raise CliError(
                f"{sum(count for count, _ in self.unsafe.values())} of {self.total} messages are stored,"
                " but not as safe as the broker promises.",
                "; ".join(
                    f"{count} x {status}: {remark}".rstrip(": ") for status, (count, remark) in self.unsafe.items()
                ),
                "See how the slaves are with: twinlog list",
            )


def _sent_object(sent: "SendResult") -> dict[str, Any]:
    return {
        "status": sent.status.name,
        "topic": sent.queue.topic,
        "broker": sent.queue.broker_name,
        "queue_id": sent.queue.queue_id,
        "queue_offset": sent.queue_offset,
        "offset_message_id": sent.offset_message_id,
        "message_id": sent.message_id,
        "remark": sent.remark,
    }

"""`twinlog send`: sends messages."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import trio
from attrs import evolve

from twinlog.cluster.admin.sending import Destination, SentMessage, sent_view
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.errors import CliError, forget_stdout, sentence
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import json_line, style
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import SendResult
from twinlog.store.config import DEFAULT_DELAY_LEVELS

DELAYS = DEFAULT_DELAY_LEVELS.split()  # messageDelayLevel of a broker may differ.


@click.command(
    "send",
    epilog=examples(
        'twinlog send orders "hello" --tags TagA --keys k1',
        'twinlog send orders --count 1000 --rate 50 "tick"',
        "jq -c '.[]' orders.json | twinlog send orders --lines --file - --batch 100",
        'twinlog send orders "later" --delay 10m',
        'twinlog send orders "in its order" --shard order-4711',
    ),
)
@click.argument("topic", shell_complete=complete.topics)
@click.argument("body", required=False)
@namesrv_option
@document_option(SentMessage)
@click.option("--tags", default="", metavar="TAG", help="Tag of the message.")
@click.option("--keys", default="", metavar="KEYS", help="Keys to find it by, separated by spaces.")
@click.option("--property", "properties", multiple=True, metavar="K=V", help="User property; repeatable.")
@click.option("--delay", type=click.Choice(DELAYS), metavar="TIME", help=f"Deliver it after TIME: {', '.join(DELAYS)}.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Delay as the number of its level.")
@click.option("--queue", type=click.IntRange(0), metavar="Q", help="Send to this queue.")
@click.option("--broker", metavar="NAME", shell_complete=complete.brokers, help="Send only to this broker group.")
@click.option("--shard", metavar="KEY", help="Send all messages of one KEY to one queue, which keeps their order.")
@click.option("--count", type=click.IntRange(1), default=1, help="Send it this many times.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Maximum number of messages per second."
)
@click.option("--batch", type=click.IntRange(1, 10_000), metavar="N", help="Number of messages in one request.")
@click.option("--file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@click.option("--lines", is_flag=True, help="With --file: send each line as a message.")
def send(
    topic: str,
    body: str | None,
    namesrv: str,
    fmt: str,
    tags: str,
    keys: str,
    properties: tuple[str, ...],
    delay: str | None,
    delay_level: int,
    queue: int | None,
    broker: str | None,
    shard: str | None,
    count: int,
    rate: float | None,
    batch: int | None,
    file: Any,
    lines: bool,
) -> None:
    """Send messages and print where each was stored.

    A line has status, topic, broker, queue, queue offset and offsetMsgId. A message is stored with any status. A status other
    than SEND_OK means that fewer members have it than the acknowledgement policy requires; the exit status is 1 then.
    """
    if not topic:
        raise click.UsageError("TOPIC is empty.")  # A broker would create it like TBW102.
    if delay is not None:
        delay_level = DELAYS.index(delay) + 1
    if shard is not None and (queue is not None or broker is not None):
        raise click.UsageError("--shard chooses the queue: leave out --queue and --broker.")
    if batch is not None and delay_level:
        raise click.UsageError("messages of a batch cannot be delayed: leave out --batch.")
    bodies = _bodies(body, file, lines)
    pairs = [text.partition("=") for text in properties]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.UsageError("--property: expected K=V")
    given = {name: value for name, _, value in pairs}
    try:
        empty = OutgoingMessage(topic=topic, body=b"", tags=tags, keys=keys, delay_level=delay_level, properties=given)
    except ValueError as error:
        raise click.UsageError(sentence(error)) from error
    messages = (evolve(empty, body=each) for each in bodies for _ in range(count))
    feed = _fed(messages, may_block=file is not None)
    to = Destination(queue_id=queue, broker=broker, shard=shard)
    report = _Report(fmt)
    run_admin(namesrv, lambda admin: admin.send(feed, report.show, to=to, rate=rate, batch=batch or 1))
    report.finish()


async def _fed(messages: Iterator[OutgoingMessage], *, may_block: bool) -> AsyncIterator[OutgoingMessage]:
    """Yield the messages; wait for typed lines in a thread, so that Ctrl-C and responses are processed meanwhile."""
    while True:
        if may_block:
            message = await trio.to_thread.run_sync(next, messages, None, abandon_on_cancel=True)
        else:
            message = next(messages, None)
        if message is None:
            return
        yield message


def _bodies(body: str | None, file: Any, lines: bool) -> Iterable[bytes]:
    if (body is None) == (file is None):
        raise click.UsageError("give the body either as an argument or with --file (- is standard input)")
    if body is not None:
        if lines:
            raise click.UsageError("--lines needs --file.")
        return [body.encode()]
    return (line.rstrip(b"\r\n") for line in file) if lines else [file.read()]


@contextmanager
def _forgiving() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        forget_stdout()


class _Report:
    """Prints one line for each response, and statuses other than SEND_OK again at the end.

    When the reader of the lines is gone (`| head -1`), messages are sent all the same.
    """

    def __init__(self, fmt: str) -> None:
        self.fmt = fmt
        self.total = 0
        self.unsafe: dict[str, tuple[int, str]] = {}
        if fmt == "tsv":
            with _forgiving():
                click.echo("status\ttopic\tbroker\tqueue\tqueue_offset\toffset_message_id\tmessage_id")

    def show(self, sent: SendResult, messages: int) -> None:
        """Print one response for a number of messages."""
        self.total += messages
        status = sent.status.name
        if status != "SEND_OK":
            self.unsafe[status] = (self.unsafe.get(status, (0, ""))[0] + messages, sent.remark or "")
        with _forgiving():
            self._print(sent, messages)

    def _print(self, sent: SendResult, messages: int) -> None:
        status = sent.status.name
        if self.fmt == "json":
            json_line(sent_view(sent, messages))
            return
        queue = sent.queue
        ids = (sent.offset_message_id, sent.message_id)
        if self.fmt == "tsv":
            line = (status, queue.topic, queue.broker_name, str(queue.queue_id), str(sent.queue_offset), *ids)
            click.echo("\t".join(line))
            return
        status = style(status, fg="green" if status == "SEND_OK" else "yellow")
        place = f"{queue.topic}  {queue.broker_name} queue {queue.queue_id} offset {sent.queue_offset}"
        if messages > 1:
            click.echo(f"{status}  {place} to {sent.queue_offset + messages - 1}  {messages} messages")
            return
        own_id = f"  msgId {sent.message_id}" if self.fmt == "wide" else ""
        click.echo(f"{status}  {place}  offsetMsgId {sent.offset_message_id}{own_id}")

    def finish(self) -> None:
        if self.unsafe:
            raise CliError(
                f"{sum(count for count, _ in self.unsafe.values())} of {self.total} messages are stored,"
                " but on fewer members than the acknowledgement policy requires.",
                "; ".join(
                    f"{count} x {status}: {remark}".rstrip(": ") for status, (count, remark) in self.unsafe.items()
                ),
                "See the slaves with: twinlog list",
            )

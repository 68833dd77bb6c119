"""Offsets of queues: their JSON forms, what is read next, how it is divided, and what is lost. Pure.

    {"orders": {"broker-a": {"0": 123, "1": -2}}}        offsets by topic, broker name and queue; -2 earliest, -1 latest
    {"orders": {"broker-a": [0, 1]}}                     queues
    {"cluster": {"broker-a": "DefaultCluster"}, "queues": {...}, "marks": {...}}   a checkpoint: the next offset of each queue,
                                                                  and a message of each broker by which it is known again;
                                                                  with dropRepetitions also "first": where the query began

A broker's name stands for its whole group, so these stay valid whoever is its master. A queue belongs to a checkpoint from the
batch on in which it was seen first: that batch ends at its first message, so that the next one knows where it begins.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import orjson
from attrs import asdict, evolve, field, frozen

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError, batch_ends
from twinlog.cluster.remoting.route import MessageQueue

EARLIEST, LATEST = -2, -1
OFFSET_MAX = (1 << 63) - 1
Offsets = dict[MessageQueue, int]
Nested = dict[str, dict[str, dict[str, int]]]


def text_of(queue: MessageQueue) -> str:
    """The queue as messages name it."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


# ---- JSON forms


def read_offsets(text: str, option: str, *, least: int) -> Offsets:
    """Parse offsets, or times, of queues; `least` is the smallest number allowed. Raises ReadRefusedError."""
    form = f'{{"topic": {{"broker name": {{"0": {"number" if least < 0 else "ms"}}}}}}}'
    found: Offsets = {}
    for topic, broker, queues in _pairs(text, option, form):
        if not isinstance(queues, dict):
            raise _no_form(option, form, f"{topic}, {broker} has no object with queues")
        for number, value in queues.items():
            if type(value) is not int or not least <= value <= OFFSET_MAX:
                raise _no_form(
                    option, form, f"{value!r} of {topic}, {broker}, {number} is no number of at least {least}"
                )
            found[MessageQueue(topic, broker, _queue_id(number, option, form))] = value
    return found


def read_queues(text: str, option: str) -> frozenset[MessageQueue]:
    """Parse a list of queues. Raises ReadRefusedError."""
    form = '{"topic": {"broker name": [0, 1]}}'
    found = set()
    for topic, broker, queues in _pairs(text, option, form):
        if not isinstance(queues, list):
            raise _no_form(option, form, f"{topic}, {broker} has no list of queues")
        found |= {MessageQueue(topic, broker, _queue_id(number, option, form)) for number in queues}
    if not found:
        raise _no_form(option, form, "it names no queue")
    return frozenset(found)


def _pairs(text: str, option: str, form: str) -> Iterable[tuple[str, str, Any]]:
    try:
        table = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _no_form(option, form, f"it is no JSON: {error}") from error
    if not isinstance(table, dict):
        raise _no_form(option, form, "it is no object")
    for topic, brokers in table.items():
        if not isinstance(brokers, dict):
            raise _no_form(option, form, f"{topic} has no object with brokers")
        for broker, queues in brokers.items():
            yield topic, broker, queues


def _queue_id(number: Any, option: str, form: str) -> int:
    text = str(number)
    if isinstance(number, bool) or not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise _no_form(option, form, f"{text!r} is no number of a queue")
    return int(text)


def _no_form(option: str, form: str, why: str) -> ReadRefusedError:
    return ReadRefusedError(f"option {option}: {why}. Its form is {form}.")


def nested(offsets: Mapping[MessageQueue, int]) -> Nested:
    """Offsets as JSON, always in the same order: Spark compares texts."""
    found: Nested = {}
    for queue in sorted(offsets):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return found


# ---- Checkpoints


@frozen
class Mark:
    """A message that was read: all members of its broker have it at one place of the log; another cluster has not."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    stored_ms: int


@frozen
class Checkpoint:
    """The next offset of each queue; of each broker the name of its cluster, and a mark once something of it was read.

    `first`: where repeated rows may have their first copies; queues that are not named have them anywhere.
    """

    cluster: dict[str, str] = field(factory=dict)
    queues: Offsets = field(factory=dict)
    marks: dict[str, Mark] = field(factory=dict)
    first: Offsets = field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For Spark."""
        first = {"first": nested(self.first)} if self.first else {}
        return {
            "cluster": dict(sorted(self.cluster.items())),
            "queues": nested(self.queues),
            "marks": {broker: asdict(mark) for broker, mark in sorted(self.marks.items())},
            **first,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises ReadRefusedError for what this source did not write."""
        try:
            cluster = {str(broker): str(name) for broker, name in value["cluster"].items()}
            queues, first = _flat(value["queues"]), _flat(value.get("first", {}))
            marks = {str(broker): Mark(**fields) for broker, fields in value.get("marks", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReadRefusedError(
                f"the checkpoint has no offsets of format rocketmq ({type(error).__name__}: {error}): it belongs to a query that "
                "read something else, or is damaged. Take an empty checkpoint directory, or that of this query."
            ) from error
        return cls(cluster, queues, marks, first)


def _flat(value: Mapping[str, Any]) -> Offsets:
    return {
        MessageQueue(topic, broker, int(number)): int(offset)
        for topic, brokers in value.items()
        for broker, offsets in brokers.items()
        for number, offset in offsets.items()
    }


def check_cluster(checkpoint: Checkpoint, cluster: Mapping[str, str]) -> None:
    """Refuse to go on in another cluster; `cluster`: the brokers that are registered now. Raises ReadRefusedError."""
    for broker, name in sorted(checkpoint.cluster.items()):
        now = cluster.get(broker)
        if now is not None and now != name:
            raise ReadRefusedError(
                f"the checkpoint is of another cluster: its broker {broker} belongs to {name}, and the one of the name servers "
                f"belongs to {now}. Set option nameServer to the cluster that the query began with, or begin with an empty "
                "checkpoint directory."
            )
    if checkpoint.cluster and cluster and not checkpoint.cluster.keys() & cluster.keys():
        raise ReadRefusedError(
            f"the checkpoint is of another cluster: it has offsets of {', '.join(sorted(checkpoint.cluster))}, and the name "
            f"servers know {', '.join(sorted(cluster))} only. Set option nameServer to the cluster that the query began with, or "
            "begin with an empty checkpoint directory."
        )


def unlike(broker: str, mark: Mark) -> str:
    """The message of a mark is another one now."""
    return (
        f"the checkpoint is of another cluster, or the log of {broker} was cut after it was read: message {mark.queue_offset} of "
        f"{text_of(MessageQueue(mark.topic, broker, mark.queue_id))} is another one than when it was read. Set option nameServer "
        "to the cluster that the query began with; else begin with an empty checkpoint directory and an empty destination"
    )


# ---- What is read next


@frozen
class Ends:
    """First and next offset of a queue, as a broker says. `by_master` False: a slave says so, which may lack the newest.

    `written`: where it ends, confirmed or not. What was confirmed is not for a while when slaves leave, as in a failover.
    """

    first: int
    end: int
    by_master: bool = True
    written: int = field(eq=False)

    @written.default
    def _to_the_end(self) -> int:
        return self.end


def limited(starts: Offsets, ends: Offsets, most: int | None) -> Offsets:
    """Ends of the next batch: `most` messages of all queues together, None for no limit. Each queue gets a fair share; what one
    does not need goes to the others. Queues without a start are left out, and no end is before its start.
    """
    queues = sorted(starts)
    found = batch_ends([starts[queue] for queue in queues], [ends.get(queue, starts[queue]) for queue in queues], most)
    return dict(zip(queues, found, strict=True))


def behind(ends: Offsets, latest: Offsets) -> Offsets:
    """Number of messages of each queue that are not read yet; queues without any are left out."""
    return {queue: end - ends[queue] for queue, end in latest.items() if queue in ends and end > ends[queue]}


@frozen
class Range:
    """Messages `start` to `end` of a queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start


def ranges_between(starts: Offsets, ends: Offsets) -> list[Range]:
    """Ranges between two checkpoints. A queue without a start is not read: it begins with the next batch."""
    pairs = ((queue, starts.get(queue, ends[queue])) for queue in sorted(ends))
    return [Range(queue, start, ends[queue]) for queue, start in pairs if start < ends[queue]]


def divided(ranges: Sequence[Range], count_min: int | None) -> list[Range]:
    """The same ranges for tasks: at least `count_min` where there are as many messages, in pieces of nearly the same size."""
    total = sum(each.size for each in ranges)
    if count_min is None or len(ranges) >= count_min:
        return list(ranges)
    found: list[Range] = []
    for each in ranges:
        count = min(each.size, max(1, -(-each.size * count_min // total)))
        bounds = [each.start + each.size * number // count for number in range(count + 1)]
        found += [Range(each.queue, low, high) for low, high in pairwise(bounds)]
    return found


# ---- Loss


def start_now(each: Range, ends: Ends) -> Range:
    """The part of a range that is there still."""
    return evolve(each, start=min(max(each.start, ends.first), each.end))


def merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches, in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(stretches):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def removed_text(queue: MessageQueue, start: int, end: int) -> str:
    """Messages `start` to `end` are gone."""
    return f"{text_of(queue)}: messages {start} to {end - 1} are gone: retention removed them before they were read"


def removed(queue: MessageQueue, start: int, end: int, first: int) -> ReadRefusedError:
    """The error of such a loss: the queue begins at `first`."""
    return ReadRefusedError(
        f"{removed_text(queue, start, end)}, and the queue begins at {first} now. To continue without them, set option "
        "failOnDataLoss=false. To prevent it, let the brokers keep files longer (fileReservedTime), or run the query more often."
    )


def cut_text(queue: MessageQueue, read: int, end: int) -> str:
    """Messages up to `read` were there, and the queue ends at `end`."""
    return (
        f"{text_of(queue)}: it was read, or planned to be read, up to {read}, and ends at {end} now: a failover cut messages "
        "that were not replicated, the topic was made anew, or this is another cluster"
    )


def cut(queue: MessageQueue, read: int, end: int) -> ReadRefusedError:
    """The error of such a queue."""
    return ReadRefusedError(
        f"{cut_text(queue, read, end)}. To continue at its end, set option failOnDataLoss=false; else begin with an empty "
        "checkpoint directory and an empty destination."
    )


def out_of_range(option: str, queue: MessageQueue, offset: int, ends: Ends) -> ReadRefusedError:
    """An offset of an option is not within its queue."""
    return ReadRefusedError(
        f"option {option}: {offset} is no offset of {text_of(queue)}, which has {ends.first} to {ends.end}. Take one of these, "
        "-2 for the earliest or -1 for the latest; with failOnDataLoss=false the nearest one is taken."
    )


def unknown_queues(
    option: str, named: Collection[MessageQueue], known: Collection[MessageQueue]
) -> ReadRefusedError | None:
    """Queues of an option that no broker has; None: all are known."""
    missing = sorted(set(named) - set(known))
    if not missing:
        return None
    shown = ", ".join(text_of(queue) for queue in missing[:3])
    return ReadRefusedError(
        f"option {option} names {shown}{' and others' if len(missing) > 3 else ''}, which no broker that is registered now has "
        "among the topics of this query. Check names with `twinlog topic list` or mqadmin topicRoute."
    )

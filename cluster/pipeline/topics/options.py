"""Parses the options of the source from Spark's texts. Pure."""

import re
from collections.abc import Mapping

from attrs import field, frozen

from twinlog.cluster.client.api import TOOLS_GROUP
from twinlog.cluster.client.subscription import Sql, Subscription
from twinlog.cluster.pipeline.sink.repetitions import LOOK_BACK
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.cluster.pipeline.tables.texts import check_spelling, flag_of, list_of, lowered, number_of
from twinlog.cluster.pipeline.topics.connection import OPTIONS as CONNECTION_OPTIONS
from twinlog.cluster.pipeline.topics.connection import Connection, read_connection
from twinlog.cluster.pipeline.topics.offsets import EARLIEST, LATEST, Offsets, read_offsets, read_queues
from twinlog.cluster.remoting.names import group_fault, is_system_topic, topic_fault
from twinlog.cluster.remoting.route import MessageQueue

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "tags",
    "sql",
    "failOnDataLoss",
    "consumerGroup",
    "brokerWaitMs",
    "dropRepetitions",
    "repetitionsLookBack",
    "inflateSizeMax",
    "inflateRatioMax",
)
BROKER_WAIT_MS = 60_000
_WHICH = ("subscribe", "subscribePattern", "assign")
_TIME_MAX = 1 << 48  # ms


@frozen
class Place:
    """Begins, or ends, of queues: `named` by queue, all others at `otherwise`. With `is_time` numbers are ms, but for -1, -2."""

    option: str
    otherwise: int
    named: Offsets = field(factory=dict)
    is_time: bool = False


@frozen
class Chosen:
    """The topics of a query: exactly one of these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[MessageQueue] = frozenset()

    @property
    def named(self) -> tuple[str, ...]:
        """Topics that have to be there."""
        return self.topics or tuple(sorted({queue.topic for queue in self.queues}))

    def matching(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Topics of a pattern: system topics, retries and dead letters only if it names their prefix."""
        assert self.pattern is not None
        pattern, is_open = re.compile(self.pattern), self.pattern.startswith(("%", "(%", "\\%"))
        return tuple(
            each
            for each in topics
            if pattern.fullmatch(each) and not is_system_topic(each) and (is_open or not each.startswith("%"))
        )

    def takes(self, queue: MessageQueue) -> bool:
        """False for queues that were not assigned."""
        return not self.queues or queue in self.queues


@frozen(kw_only=True)
class SourceOptions:
    """Options of a query. `end` None in a stream; `most` messages for one batch; `look_back` None: repetitions are kept."""

    connection: Connection
    chosen: Chosen
    start: Place
    end: Place | None = None
    most: int | None = None
    parts_min: int | None = None
    wanted: str | Sql = "*"
    fail_on_data_loss: bool = True
    group: str | None = None  # Whose progress is committed.
    broker_wait_ms: int = BROKER_WAIT_MS
    look_back: int | None = None
    inflate: InflateLimits = field(factory=InflateLimits)

    @property
    def reading_group(self) -> str:
        """The group that pulls name."""
        return self.group or TOOLS_GROUP

    @property
    def is_filtered(self) -> bool:
        """True when the broker leaves out messages."""
        return self.wanted != "*"

    def subscription(self, topic: str) -> Subscription:
        """Filter of the pulls."""
        return Subscription.of(topic, self.wanted, 0)


def read_options(texts: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Parse the options; names are case-insensitive, as everywhere in Spark. Raises ReadRefusedError, naming the option."""
    check_spelling(texts, (*OPTIONS, *CONNECTION_OPTIONS))
    options = lowered(texts)
    connection = read_connection(options)
    group = options.get("consumergroup", "").strip() or None
    if group is not None and (fault := group_fault(group)):
        raise ReadRefusedError(f"option consumerGroup is {group!r}: {fault}")
    return SourceOptions(
        connection=connection,
        chosen=_chosen(options),
        start=_place(options, "starting", LATEST if is_stream else EARLIEST, is_stream=is_stream),
        end=_end(options, is_stream=is_stream),
        most=number_of(options, "maxOffsetsPerTrigger", 1) if options.get("maxoffsetspertrigger") else None,
        parts_min=number_of(options, "minPartitions", 1) if options.get("minpartitions") else None,
        wanted=_wanted(options),
        fail_on_data_loss=flag_of(options, "failOnDataLoss", True),
        group=group,
        broker_wait_ms=number_of(options, "brokerWaitMs", BROKER_WAIT_MS),
        look_back=_look_back(options),
        inflate=InflateLimits(
            size_max=number_of(options, "inflateSizeMax", InflateLimits().size_max),
            ratio_max=number_of(options, "inflateRatioMax", InflateLimits().ratio_max),
        ),
    )


def _look_back(options: Mapping[str, str]) -> int | None:
    offsets = number_of(options, "repetitionsLookBack", LOOK_BACK)
    return offsets if flag_of(options, "dropRepetitions", False) else None


def _chosen(options: Mapping[str, str]) -> Chosen:
    given = [name for name in _WHICH if options.get(name.lower(), "").strip()]
    if len(given) != 1:
        told = f"options {' and '.join(given)} are set" if given else "no topic is named"
        raise ReadRefusedError(f"{told}: set exactly one of {', '.join(_WHICH)}")
    text = options[given[0].lower()].strip()
    if given[0] == "assign":
        queues = read_queues(text, "assign")
        _check_topics("assign", tuple(sorted({queue.topic for queue in queues})))
        return Chosen(queues=queues)
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(list_of(text)))
        _check_topics("subscribe", topics)
        return Chosen(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise ReadRefusedError(
            f"option subscribePattern is {text!r}, which is no regular expression: {error}"
        ) from error
    return Chosen(pattern=text)


def _check_topics(option: str, topics: tuple[str, ...]) -> None:
    for topic in topics:
        if fault := topic_fault(topic):
            raise ReadRefusedError(f"option {option} names the topic {topic!r}: {fault}")
    if not topics:
        raise ReadRefusedError(f"option {option} names no topic: name one, or several separated by commas")


def _wanted(options: Mapping[str, str]) -> str | Sql:
    tags, sql = options.get("tags", "").strip(), options.get("sql", "").strip()
    if tags and sql:
        raise ReadRefusedError(
            "options tags and sql are both set: set one of them, or filter by both in sql (TAGS = 'a')"
        )
    if sql:
        return Sql(sql)
    try:
        Subscription.of("t", tags or "*", 0)
    except ValueError as error:
        raise ReadRefusedError(f"option tags is {tags!r}: {error}") from error
    return tags or "*"


def _end(options: Mapping[str, str], *, is_stream: bool) -> Place | None:
    if not is_stream:
        return _place(options, "ending", LATEST, is_stream=False)
    for name in ("endingOffsets", "endingTimestamp"):
        if options.get(name.lower(), "").strip():
            raise ReadRefusedError(
                f"option {name} is set for a stream, which has no end: leave it out, or use spark.read"
            )
    return None


def _place(options: Mapping[str, str], which: str, default: int, *, is_stream: bool) -> Place:
    offsets, time = f"{which}Offsets", f"{which}Timestamp"
    given = {name: options.get(name.lower(), "").strip() for name in (offsets, time)}
    if all(given.values()):
        raise ReadRefusedError(f"options {offsets} and {time} are both set: set one of them")
    otherwise = EARLIEST if which == "starting" else LATEST
    if text := given[time]:
        if text.isascii() and text.isdecimal() and int(text) < _TIME_MAX:
            return Place(time, int(text), is_time=True)
        named = read_offsets(text, time, least=0)
        return Place(time, otherwise, named, is_time=True)
    text = given[offsets]
    words = {"earliest": EARLIEST, "latest": LATEST}
    if not text or text.lower() in words:
        found = Place(offsets, words.get(text.lower(), default))
    else:
        found = Place(offsets, otherwise, read_offsets(text, offsets, least=EARLIEST))
    _check_ends(found, which, is_stream=is_stream)
    return found


def _check_ends(place: Place, which: str, *, is_stream: bool) -> None:
    numbers = {place.otherwise, *place.named.values()}
    if which == "ending" and EARLIEST in numbers:
        raise ReadRefusedError(
            f"option {place.option} is earliest (-2): nothing would be read. Take latest (-1), or offsets."
        )
    if which == "starting" and LATEST in numbers and not is_stream:
        raise ReadRefusedError(
            f"option {place.option} is latest (-1): a read that has an end would read nothing. Take earliest (-2), offsets or "
            "startingTimestamp."
        )

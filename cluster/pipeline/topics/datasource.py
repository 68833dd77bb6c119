"""Format `rocketmq`: topics of a running cluster as a Python data source for Spark 4; see docs/reference/spark.md.

Spark runs a reader in a process of its own, which asks the cluster and divides what is to be read into parts; tasks read these. A
stream's progress is a checkpoint of offsets.py, in which nothing depends on who is master.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.datasource import struct_of
from twinlog.cluster.pipeline.tables.texts import warn
from twinlog.cluster.pipeline.topics.committing import GroupProgress
from twinlog.cluster.pipeline.topics.offsets import (
    Checkpoint,
    Ends,
    Mark,
    Offsets,
    behind,
    check_cluster,
    cut,
    cut_text,
    divided,
    limited,
    ranges_between,
    removed,
    removed_text,
    start_now,
    text_of,
)
from twinlog.cluster.pipeline.topics.options import SourceOptions, read_options
from twinlog.cluster.pipeline.topics.pulling import CUT_SECONDS, QueuePart
from twinlog.cluster.pipeline.topics.reading import part_batches
from twinlog.cluster.pipeline.topics.refusals import refused
from twinlog.cluster.pipeline.topics.rows import SCHEMA
from twinlog.cluster.pipeline.topics.survey import Survey, Surveyor
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import BrokerAddresses, MessageQueue

NAME = "rocketmq"
_COPIED_SECONDS = 0.1  # Until the JVM has copied a line from this process to its stderr: its own log follows it.
P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]


class TopicPart(InputPartition):
    """A range of a queue for one task."""

    def __init__(self, part: QueuePart) -> None:
        self.part = part


def ask(options: SourceOptions, do: Callable[[Surveyor], Awaitable[T]]) -> T:
    """Ask the cluster in a trio loop of its own. Raises ReadRefusedError and RemotingError."""

    async def asked() -> T:
        async with options.connection.open() as api:
            return await do(Surveyor(api, options))

    return trio.run(asked)


def _told(options: SourceOptions, error: RemotingError) -> ReadRefusedError:
    return refused(f"the name servers {';'.join(options.connection.name_servers)}, or a broker of theirs", error)


def says_why(method: Callable[P, T]) -> Callable[P, T]:
    """Let a stream's method say on stderr by what the query ends, before Spark's log does, at the end of a traceback."""

    @wraps(method)
    def said(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except ReadRefusedError as error:
            warn(f"the query ends: {error}")
            time.sleep(_COPIED_SECONDS)
            raise error from None  # Its causes are in its text.

    return said


def check_topics(options: SourceOptions, survey: Survey) -> None:
    """Raises ReadRefusedError for topics, or assigned queues, that no broker has."""
    known = {queue.topic for queue in survey.all_queues}
    missing = [topic for topic in options.chosen.named if topic not in known]
    if missing:
        raise ReadRefusedError(
            f"no broker that is registered now has a readable queue of the topic {missing[0]}"
            + (f", nor of {', '.join(missing[1:4])}" if missing[1:] else "")
            + ". Check the name (option subscribe or assign), and that nameServer names the right cluster."
        )
    gone = sorted(options.chosen.queues - survey.all_queues)
    if gone:
        raise ReadRefusedError(
            f"option assign names {text_of(gone[0])}, which that broker does not have, or which may not be read. Check with "
            "`twinlog topic list` or mqadmin topicRoute."
        )


def parts_of(
    starts: Offsets, ends: Offsets, brokers: Mapping[str, BrokerAddresses], options: SourceOptions
) -> list[InputPartition]:
    """Parts for tasks."""
    found = divided(ranges_between(starts, ends), options.parts_min)
    return [TopicPart(QueuePart(each, brokers[each.queue.broker_name], starts[each.queue])) for each in found]


class TopicReader(DataSourceReader):
    """Reads once what is there: from earliest to latest, unless options say otherwise."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """All that is to be read, with ends as they are now."""
        try:
            survey, starts, ends = ask(self.options, self._plan)
        except RemotingError as error:
            raise _told(self.options, error) from error
        return parts_of(starts, ends, survey.brokers, self.options)

    async def _plan(self, surveyor: Surveyor) -> tuple[Survey, Offsets, Offsets]:
        survey = await surveyor.survey()
        check_topics(self.options, survey)
        survey.require("this read")
        await surveyor.try_out(survey)
        assert self.options.end is not None
        starts = await surveyor.places(survey, self.options.start)
        return survey, starts, await surveyor.places(survey, self.options.end)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Rows of a part."""
        if isinstance(partition, TopicPart):
            yield from part_batches(partition.part, self.options, self.schema)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. Lives in its own process as long as the query; read() runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, to_arrow_schema(schema, timezone="UTC")
        self._survey: Survey | None = None  # The last one.
        self._target: Offsets | None = None  # With trigger AvailableNow: where the query ends.
        self._reported: Json | None = None
        self._is_tried = False
        self._is_lost = False  # No name server answers.
        self._is_checked = False  # The checkpoint is of this cluster.
        self._warned: dict[str, str] = {}
        self._short_since: dict[MessageQueue, float] = {}  # Queues that end before they were read up to.
        self._gone: frozenset[MessageQueue] = frozenset()
        self._progress = None if options.group is None else GroupProgress(options.group, warn)

    # ---- Asking

    async def _look(self, surveyor: Surveyor) -> Survey:
        """A survey; brokers without an answer are told once."""
        survey = await surveyor.survey()
        if not self._is_tried:
            await surveyor.try_out(survey)
            self._is_tried = bool(survey.queues)
        for name, why in survey.away.items():
            if name not in self._warned:
                warn(f"the broker {name} does not answer, so its queues wait: {why}")
        for name in self._warned.keys() - survey.away.keys():
            warn(f"the broker {name} answers again")
        if self._is_lost:
            warn("a name server answers again")
        self._warned, self._is_lost, self._survey = dict(survey.away), False, survey
        return survey

    async def _look_for(self, begun: Checkpoint, surveyor: Surveyor) -> Survey:
        """The same, to go on from a checkpoint. Raises ReadRefusedError when it is of another cluster."""
        survey = await self._look(surveyor)
        check_cluster(begun, survey.clusters)
        if not self._is_checked and (why := await surveyor.unlike(survey, begun.marks)):
            if self.options.fail_on_data_loss:
                raise ReadRefusedError(f"{why}.")
            warn(f"{why}; it is read on")
        self._is_checked = True
        return survey

    # ---- Spark's methods

    @says_why
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name, as those below.
        """Start of a new query."""

        async def initial(surveyor: Surveyor) -> Checkpoint:
            survey = await self._look(surveyor)
            check_topics(self.options, survey)
            survey.require("the start of a query")
            places = await surveyor.places(survey, self.options.start)
            return Checkpoint(survey.clusters, places, first=self._first(Checkpoint({}, places)))

        return self._asked(initial).to_json()

    def _first(self, begun: Checkpoint) -> Offsets:
        """Offsets from which on first copies count: where the query began, or where the option was switched on."""
        return begun.queues if self.options.look_back is not None and not begun.first else begun.first

    def _asked(self, do: Callable[[Surveyor], Awaitable[T]]) -> T:
        try:
            return ask(self.options, do)
        except RemotingError as error:
            raise _told(self.options, error) from error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit from option maxOffsetsPerTrigger."""
        return ReadAllAvailable() if self.options.most is None else ReadMaxRows(self.options.most)

    @says_why
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """End of the next batch. Without name servers there is none: the query waits for them, once it has run."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        try:
            return ask(self.options, partial(self._next, Checkpoint.from_json(start), most)).to_json()
        except RemotingError as error:
            if self._survey is None:
                raise _told(self.options, error) from error
            if not self._is_lost:
                warn(f"no name server answers, so the query waits: {error}")
            self._is_lost = True
            return start

    async def _next(self, begun: Checkpoint, most: int | None, surveyor: Surveyor) -> Checkpoint:
        survey = await self._look_for(begun, surveyor)
        self._tell_gone(begun, survey)
        # Spark asks for the next batch when the one before is done, and commits it only if there is a next one.
        if self._progress is not None:
            await self._progress.commit(surveyor.api, survey.brokers, begun.queues)
        starts, new = dict(begun.queues), {}
        for queue, at in survey.queues.items():
            if queue not in starts:
                new[queue] = at.first
            else:
                starts[queue] = self._start(queue, starts[queue], at)
        reachable = {queue: end for queue, end in survey.ends.items() if queue in starts}
        if self._target is not None:
            reachable = {queue: min(end, self._target.get(queue, starts[queue])) for queue, end in reachable.items()}
            new = {queue: first for queue, first in new.items() if queue in self._target}
        ends = limited(starts, reachable, most)
        known = {**begun.cluster, **survey.clusters}
        cluster = {queue.broker_name: known.get(queue.broker_name, "") for queue in ends | new}
        marks = await self._marks(surveyor, survey, begun, ends)
        found = Checkpoint(cluster, ends | new, marks, self._first(begun))
        await self._report(surveyor, survey, found)
        return found

    async def _marks(self, surveyor: Surveyor, survey: Survey, begun: Checkpoint, ends: Offsets) -> dict[str, Mark]:
        """The marks of a checkpoint: new ones of brokers of which more is read."""
        read = {queue.broker_name: queue for queue in sorted(ends) if ends[queue] > begun.queues[queue]}

        async def mark(queue: MessageQueue) -> Mark | None:
            try:
                return await surveyor.mark(survey, queue, ends[queue])
            except RemotingError:
                return None

        found = await in_parallel(partial(mark, queue) for queue in read.values())
        return begun.marks | {name: each for name, each in zip(read, found, strict=True) if each is not None}

    def _tell_gone(self, begun: Checkpoint, survey: Survey) -> None:
        """Queues of the checkpoint that no route has stay in it, and may come again."""
        gone = sorted(begun.queues.keys() - survey.all_queues)
        for queue in gone:
            if queue not in self._gone:
                warn(
                    f"{text_of(queue)} is not registered any more, or not asked for: it stays at {begun.queues[queue]}"
                )
        self._gone = frozenset(gone)

    def _start(self, queue: MessageQueue, start: int, ends: Ends) -> int:
        """Offset to read a queue on from: behind its end for a while, as a new master may be building its queues."""
        if start <= ends.written:
            self._short_since.pop(queue, None)
            return start
        now = time.monotonic()
        since = self._short_since.setdefault(queue, now)
        if not ends.by_master or now < since + CUT_SECONDS:
            return start
        if self.options.fail_on_data_loss:
            raise cut(queue, start, ends.end)
        warn(cut_text(queue, start, ends.end))
        return ends.end

    async def _report(self, surveyor: Surveyor, survey: Survey, found: Checkpoint) -> None:
        """Note where queues end, and how far the batch will be behind: messages, and the age of the oldest of them."""
        waiting = behind(found.queues, survey.ends)

        async def age_ms(queue: MessageQueue) -> int:
            try:
                return await surveyor.age_ms(survey, queue, found.queues[queue])
            except RemotingError:
                return 0

        ages = await in_parallel(partial(age_ms, queue) for queue in waiting)
        latest = Checkpoint(found.cluster, {**found.queues, **survey.ends})
        self._reported = {**latest.to_json(), "lag": {"messages": sum(waiting.values()), "ms": max(ages, default=0)}}

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Ends of all queues, for the query's progress."""
        return self._reported

    @says_why
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current ends."""
        self._target = self._asked(self._look).ends

    @says_why
    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Messages between two checkpoints; after a restart those that were planned before it."""
        begun, ended = Checkpoint.from_json(start), Checkpoint.from_json(end)
        ranges = ranges_between(begun.queues, ended.queues)
        if not ranges:
            return []
        survey = self._survey or self._asked(partial(self._look_for, begun))
        found = []
        for each in ranges:
            if ends := survey.queues.get(each.queue):
                now = start_now(each, ends)
                if now.start > each.start:
                    if self.options.fail_on_data_loss:
                        raise removed(each.queue, each.start, now.start, ends.first)
                    warn(removed_text(each.queue, each.start, now.start))
                each = now
            if each.size:
                found.append(each)
        # A broker that is away is waited for in tasks.
        unknown = BrokerAddresses("", "", {})
        return [
            TopicPart(
                QueuePart(each, survey.brokers.get(each.queue.broker_name, unknown), ended.first.get(each.queue, 0))
            )
            for each in divided(found, self.options.parts_min)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a part."""
        if isinstance(partition, TopicPart):
            yield from part_batches(partition.part, self.options, self.schema)

    def commit(self, end: Json) -> None:
        """Report progress as that of a consumer group, if one is named."""
        progress = self._progress
        if progress is None:
            return
        done = Checkpoint.from_json(end).queues

        async def commit(surveyor: Surveyor) -> None:
            survey = self._survey or await self._look(surveyor)
            await progress.commit(surveyor.api, survey.brokers, done)

        try:
            ask(self.options, commit)
        except (RemotingError, ReadRefusedError) as error:
            progress.warn_of(str(error))


class RocketMQSource(DataSource):
    """Topics of a running cluster."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return struct_of(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(read_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name.
        return TopicStreamReader(read_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from twinlog.cluster.pipeline.sink.writers import RowWriter  # All workers import this file, and few write.

        return RowWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from twinlog.cluster.pipeline.sink.writers import RowStreamWriter

        writer: DataSourceStreamWriter = RowStreamWriter(self.options, schema)
        return writer

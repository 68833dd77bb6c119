"""Reads a part in a task: a thread with its own trio loop pulls, and the task's thread makes batches of what came.

The generator that Spark asks for batches cannot wait within a trio loop. Two pieces of about 8 MiB lie ready at most.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import trio
from attrs import define, evolve, field

from twinlog.cluster.pipeline.sink.ids import PROPERTY
from twinlog.cluster.pipeline.sink.repetitions import Repetitions, first_needed
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.texts import warn
from twinlog.cluster.pipeline.topics.offsets import Range, text_of
from twinlog.cluster.pipeline.topics.options import SourceOptions
from twinlog.cluster.pipeline.topics.pulling import QueuePart, RangePuller
from twinlog.cluster.pipeline.topics.rows import Pulled, RowMaker

_READY = 2

Warn = Callable[[str], None]


def part_batches(part: QueuePart, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a part, in the columns of `schema`. Raises ReadRefusedError."""
    found = _sound_batches(part, options, schema)
    return found if options.look_back is None else _without_repetitions(found, part, options, schema)


def _without_repetitions(
    batches: Iterator[pa.RecordBatch], part: QueuePart, options: SourceOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows whose ids did not come before; reads what lies before the part when its first id comes."""
    assert options.look_back is not None
    known: Repetitions | None = None
    for batch in batches:
        ids = row_ids(batch)
        if known is None and ids.null_count == batch.num_rows:
            yield batch
            continue
        if known is None:
            known = Repetitions(options.look_back)
            for before in _before(part, options, schema):
                known.are_new(before.column("queueOffset").to_pylist(), row_ids(before).to_pylist())
        new = known.are_new(batch.column("queueOffset").to_pylist(), ids.to_pylist())
        if new.all():
            yield batch
        elif new.any():
            yield batch.filter(pa.array(new))


def _before(part: QueuePart, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows before a part that tell which of its rows are repetitions. What is lost there was told of when it was read."""
    assert options.look_back is not None
    start = part.range.start
    first = first_needed(start, options.look_back, part.floor)
    if first < start:
        there = evolve(part, range=Range(part.range.queue, first, start))
        yield from _sound_batches(there, evolve(options, fail_on_data_loss=False), schema, lambda _: None)


def row_ids(batch: pa.RecordBatch) -> pa.Array:
    """Ids that the sink gave to rows; null without one."""
    return pc.map_lookup(batch.column("properties"), pa.scalar(PROPERTY), "first")


def _sound_batches(
    part: QueuePart, options: SourceOptions, schema: pa.Schema, warn: Warn = warn
) -> Iterator[pa.RecordBatch]:
    queue = part.range.queue
    maker = RowMaker(queue, schema, options.inflate, options.subscription(queue.topic).tags)
    for pieces in pulled(part, options, warn):
        for batch, problems in maker.batches(pieces):
            for problem in problems:
                if options.fail_on_data_loss:
                    raise ReadRefusedError(
                        f"{problem}: the broker's log is damaged there. Compare its members with `twinlog audit`, which tells "
                        "how to repair it. To continue without the message, set option failOnDataLoss=false."
                    )
                warn(f"{problem}; it is left out")
            if batch.num_rows:
                yield batch


def pulled(part: QueuePart, options: SourceOptions, warn: Warn = warn) -> Iterator[list[Pulled]]:
    """Records of a part, in order. Raises ReadRefusedError."""
    work = _Work(part, options, warn)
    thread = Thread(target=work.run, name=f"pulls of {text_of(part.range.queue)}", daemon=True)
    thread.start()
    try:
        while (item := work.ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            work.taken()
    finally:
        work.stop()
        thread.join()


@define(eq=False)
class _Work:
    """Pulling in a thread of its own."""

    part: QueuePart
    options: SourceOptions
    warn: Warn
    ready: SimpleQueue[list[Pulled] | BaseException | None] = field(factory=SimpleQueue)
    _room: trio.Semaphore = field(init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _token: trio.lowlevel.TrioToken | None = field(default=None, init=False)

    def run(self) -> None:
        """Run to the end; the last item is None, or an error."""
        try:
            trio.run(self._pull)
        except BaseException as error:
            self.ready.put(error)
        else:
            self.ready.put(None)

    async def _pull(self) -> None:
        self._room, self._token = trio.Semaphore(_READY), trio.lowlevel.current_trio_token()
        with self._scope:
            async with self.options.connection.open() as api:
                await RangePuller(api, self.part, self.options, self._take, self.warn).run()

    async def _take(self, pieces: list[Pulled]) -> None:
        await self._room.acquire()
        self.ready.put(pieces)

    def taken(self) -> None:
        """Make room for another item."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._room.release)

    def stop(self) -> None:
        """End early."""
        if self._token is None:  # It has hardly begun.
            self._scope.cancel()
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._scope.cancel)

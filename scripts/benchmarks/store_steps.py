"""What is measured of our store without its broker, each in a process of its own.

    python -m scripts.benchmarks.store_steps STEP SCALE DIRECTORY [OPTIONS AS JSON]

What stdout gets is the result, as JSON; stderr tells of progress.
"""

import gc
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
import trio
from attrs import evolve

from scripts.benchmarks.store_directory import BODY_SIZE, FULL, QUEUES_PER_TOPIC, QUICK, Scale
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.walk import walk
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.verify.verify import verify
from twinlog.store.record.message import host_bytes

MIB = 1 << 20
FILL_BATCH = 64
SCALES = {"full": FULL, "quick": QUICK}
_HOST = host_bytes("127.0.0.1:10911")
_BODY = bytes(BODY_SIZE)
Result = dict[str, Any]


def message(number: int, queue: int) -> PutMessage:
    """A message as producers send them: with a key and a unique id."""
    topic, queue_id = divmod(queue, QUEUES_PER_TOPIC)
    properties = f"KEYS\x01key-{number}\x02UNIQ_KEY\x017F000001{number:024X}"
    return PutMessage(
        f"bench-{topic}", queue_id, _BODY, properties.encode(), 0, 0, 1_700_000_000_000, _HOST, _HOST, 0, 0, 0
    )


class Stopwatch:
    """Time since it was made, and CPU time of this process and its children that ended."""

    def __init__(self) -> None:
        self.started, self._cpu = time.perf_counter(), sum(os.times()[:4])

    def read(self) -> Result:
        return {"seconds": time.perf_counter() - self.started, "cpu_seconds": sum(os.times()[:4]) - self._cpu}


def opened(root: Path, scale: Scale, **settings: Any) -> MessageStore:
    store = MessageStore(evolve(scale.config(root), **settings))
    store.load()
    return store


def fill(root: Path, scale: Scale) -> Result:
    """Make the directory that everything else is measured on, but for its index: that is another step."""
    watch = Stopwatch()
    store = opened(root, scale, message_index_enable=False)
    number, told = 0, 0
    while store.max_offset < scale.log_bytes:
        queue = number // FILL_BATCH % scale.queues  # One for each batch: that is quicker.
        store.put([message(n, queue) for n in range(number, number + FILL_BATCH)])
        store.dispatch_pending()
        number += FILL_BATCH
        if store.max_offset - told >= 512 * MIB:
            told = store.max_offset
            print(f"{told // MIB} MiB written", file=sys.stderr, flush=True)
    size = store.max_offset
    trio.run(store.close)
    return {"messages": number, "bytes": size, **watch.read()}


async def index_is_level(store: MessageStore) -> None:
    """Wait until the keys of all messages are in the index."""
    while store.index.statistics().lag_bytes:
        await trio.sleep(0.01)


def append(root: Path, scale: Scale, *, batch: int) -> Result:
    """Put messages for a while with everything that belongs to a running store: queues, index, digests, flushes."""

    async def put_for_a_while() -> Result:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for seconds in (scale.append_seconds / 2, scale.append_seconds):  # The first to warm up.
                watch, before = Stopwatch(), number[0]
                while time.perf_counter() < watch.started + seconds:
                    at = number[0] % len(pool)
                    store.put(pool[at : at + batch])
                    number[0] += batch
                    await trio.lowlevel.checkpoint()
            result = {"messages": number[0] - before, **watch.read()}
            nursery.cancel_scope.cancel()
        return result

    number, pool = [0], [message(n, n % QUEUES_PER_TOPIC) for n in range(FILL_BATCH * 1024)]
    store = opened(root, scale)
    gc.freeze()
    return trio.run(put_for_a_while)


def scan(root: Path, scale: Scale) -> Result:
    """Read all records of the log once and verify their CRCs."""
    store = opened(root, scale)
    watch, records, start = Stopwatch(), 0, store.min_offset
    for _, found in walk(store.commit_log, start, check_crc=True, delays_ms=store.delays_ms):
        records += len(found.entries)
    return {"messages": records, "bytes": store.max_offset - start, **watch.read()}


def rebuild_queues(root: Path, scale: Scale) -> Result:
    """Open a store whose consume queues are gone."""
    shutil.rmtree(root / "consumequeue")
    watch = Stopwatch()
    store = opened(root, scale)
    read = watch.read()
    messages = sum(queue.max_offset for _, _, queue in store.queues())
    return {"messages": messages, "bytes": store.max_offset - store.min_offset, **read}


def build_index(root: Path, scale: Scale) -> Result:
    """Follow the log from its start, as after the index was deleted; then bring the digests level, too, and stop cleanly."""

    async def follow() -> Result:
        watch = Stopwatch()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.index.run)
            await index_is_level(store)
            read = watch.read()
            nursery.start_soon(store.digest.run)
            while store.max_offset - store.digest.digests.end >= BLOCK_SIZE:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await store.close()
        return read

    shutil.rmtree(root / "index", ignore_errors=True)
    store = opened(root, scale, scrub_bytes_per_second=1 << 30)  # Nobody else reads the disk meanwhile.
    size = store.max_offset - store.min_offset
    return {"bytes": size, **trio.run(follow)}


def verify_all(root: Path, scale: Scale) -> Result:
    """`twinlog log verify`. Raises RuntimeError when something does not fit."""
    watch = Stopwatch()
    with StoreDirectory.open(root, DirectoryOptions(index_slots=scale.index_slots)) as directory:
        report = verify(directory)
    if report.errors:
        raise RuntimeError(f"{report.errors} errors, the first: {report.findings[0]}")
    return {"messages": report.records, "bytes": report.log_end - report.log_start, **watch.read()}


STEPS: dict[str, Callable[..., Result]] = {
    "fill": fill,
    "append": append,
    "scan": scan,
    "rebuild-queues": rebuild_queues,
    "build-index": build_index,
    "verify": verify_all,
}

if __name__ == "__main__":
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    name, scale_name, directory, *rest = sys.argv[1:]
    options = json.loads(rest[0]) if rest else {}
    print(json.dumps(STEPS[name](Path(directory), SCALES[scale_name], **options)), flush=True)

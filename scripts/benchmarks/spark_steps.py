"""What is measured of Spark on a running cluster, and the same by a loop of Python. Each runs in a process of its own.

    python -m scripts.benchmarks.spark_steps spark MASTER    commands as JSON, a line each, on stdin; a result for each on stdout
    python -m scripts.benchmarks.spark_steps read|write OPTIONS_AS_JSON    the loop: one result

`bytes` are those of bodies. CPU time is that of all processes of a reader or writer: driver, JVM and Python workers.
"""

import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import psutil
import trio

from twinlog.client import Client, From, OutgoingMessage, PullConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL_EXTRA = 997  # Bodies are pieces of one random text that begin at so many places.
LOOP_BATCH_BYTES, LOOP_POLL = 256 << 10, 1024
Result = dict[str, Any]
Used = dict[tuple[int, float], float]  # CPU seconds by process.


# ---- Spark


class Session:
    """A session that answers commands."""

    def __init__(self, master: str) -> None:
        from twinlog.spark import spark_session

        began = time.perf_counter()
        self._spark: SparkSession = spark_session(master, name="bench")
        self._process = psutil.Process()
        self.seconds = time.perf_counter() - began

    def read(self, *, options: dict[str, str]) -> Result:
        """All rows and columns of a topic, counted and thrown away. Bytes are not added up: Spark copies each body for that."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        table = self._spark.read.format("rocketmq").options(**options).load()
        table = table.observe(seen, f.count(f.lit(1)).alias("messages"))
        return {**self._timed(table.write.format("noop").mode("overwrite")), **seen.get}

    def write(self, *, messages: int, body_bytes: int, tasks: int, options: dict[str, str]) -> Result:
        """Rows of random bodies into a topic."""
        from pyspark.sql import functions as f

        pool = random.Random(body_bytes).randbytes(body_bytes + POOL_EXTRA)
        rows = self._spark.range(0, messages, 1, tasks).select(
            f.substring(f.lit(pool), (f.col("id") % POOL_EXTRA + 1).cast("int"), f.lit(body_bytes)).alias("value")
        )
        done = self._timed(rows.write.format("rocketmq").mode("append").options(**options))
        return {**done, "messages": messages, "bytes": messages * body_bytes}

    def _timed(self, writer: Any) -> Result:
        before, began = self._used(), time.perf_counter()
        writer.save()
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "cpu_seconds": cpu_between(before, self._used())}

    def _used(self) -> Used:
        return dict(map(_used, [self._process, *self._process.children(recursive=True)]))


def cpu_between(before: Used, after: Used) -> float:
    """CPU seconds of all processes that still live. What a worker used that ended is lost, as pyspark's daemon ignores the end of
    its children; Spark ends workers only after a minute without work.
    """
    return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())


def _used(process: psutil.Process) -> tuple[tuple[int, float], float]:
    """A process, by its id and its start, with the CPU time of itself and of its children that ended."""
    started = process.create_time()
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return (process.pid, started), 0.0
    return (process.pid, started), float(times.user + times.system + times.children_user + times.children_system)


def serve(master: str) -> None:
    """Answer commands until stdin ends."""
    session = Session(master)
    _answer({"seconds": session.seconds})
    steps: dict[str, Callable[..., Result]] = {"read": session.read, "write": session.write}
    for line in sys.stdin:
        command = json.loads(line)
        _answer(steps[command.pop("do")](**command))


# ---- The loop


async def read(*, name_server: str, topic: str, messages: int, limit_s: float) -> Result:
    """Poll until so many messages were there, and do nothing with them."""
    got = size = 0
    with trio.fail_after(limit_s):
        async with (
            Client(name_server) as client,
            PullConsumer(client, "bench-loop", start=From.FIRST, auto_commit=False) as consumer,
        ):
            began, cpu = time.perf_counter(), time.process_time()
            await consumer.assign(await consumer.queues(topic))
            while got < messages:
                batch = await consumer.poll(count_max=LOOP_POLL)
                got += len(batch)
                size += sum(len(message.body) for message in batch)
            seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": used, "messages": got, "bytes": size}


async def write(*, name_server: str, topic: str, messages: int, body_bytes: int, limit_s: float) -> Result:
    """Send batches, one after the other."""
    pool = random.Random(body_bytes).randbytes(body_bytes + POOL_EXTRA)
    per_batch = max(1, LOOP_BATCH_BYTES // (body_bytes + 100))
    with trio.fail_after(limit_s):
        async with Client(name_server) as client:
            producer = client.producer("bench-loop")
            await producer.queues(topic)
            began, cpu = time.perf_counter(), time.process_time()
            for first in range(0, messages, per_batch):
                numbers = range(first, min(first + per_batch, messages))
                bodies = (pool[n % POOL_EXTRA :][:body_bytes] for n in numbers)
                await producer.send_batch([OutgoingMessage(topic=topic, body=body) for body in bodies])
            seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": used, "messages": messages, "bytes": messages * body_bytes}


def _answer(result: Result) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    what, argument = sys.argv[1:]
    if what == "spark":
        serve(argument)
    else:
        options = json.loads(argument)
        loop: Callable[..., Awaitable[Result]] = {"read": read, "write": write}[what]
        _answer(trio.run(lambda: loop(**options)))

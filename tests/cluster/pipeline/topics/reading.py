"""Readers of format rocketmq as Spark uses them, without a JVM: in a thread beside the brokers, sent to tasks by pickle."""

import json
import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any

import trio
from attrs import define, field
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinlog.client import Client, OutgoingMessage
from twinlog.cluster.pipeline.topics.connection import Connection
from twinlog.cluster.pipeline.topics.datasource import RocketMQSource

Row = dict[str, Any]


def rows_of(reader: Any, parts: Iterable[InputPartition]) -> list[Row]:
    """Rows of some parts."""
    schema = to_arrow_schema(RocketMQSource({}).schema(), timezone="UTC")
    found: list[Row] = []
    for part in parts:
        task_reader, task_part = pickle.loads(pickle.dumps((reader, part)))
        for batch in task_reader.read(task_part):
            assert batch.schema.equals(schema)
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def _rows(options: dict[str, str]) -> list[Row]:
    source = RocketMQSource(options)
    reader = source.reader(source.schema())
    return rows_of(reader, reader.partitions())


async def rows(namesrv: str, **options: str) -> list[Row]:
    """All rows of a read."""
    return await in_thread(_rows, {"nameServer": namesrv} | options)


async def in_thread(do: Any, *arguments: Any) -> Any:
    """Readers have loops of their own."""
    return await trio.to_thread.run_sync(partial(do, *arguments))


async def known(namesrv: str, topic: str, broker: str = "broker-a") -> None:
    """Wait until name servers know a topic of a broker: they are told of one that a message created after its answer."""
    async with Connection(name_servers=(namesrv,)).open() as api:
        with trio.fail_after(10):
            while (route := await api.topic_route(topic)) is None or broker not in route.brokers:
                await trio.sleep(0.02)


async def send(namesrv: str, topic: str, *bodies: bytes, sign: Any = None, **more: Any) -> None:
    """Messages of a topic, one after the other."""
    async with Client(namesrv, sign=sign) as client:
        producer = client.producer("tests")
        for body in bodies:
            await producer.send(OutgoingMessage(topic=topic, body=body, **more))
    await known(namesrv, topic)


@define
class Query:
    """A stream and its checkpoint: batches that were planned, and how many are done."""

    options: dict[str, str]
    planned: list[str] = field(factory=list)
    done: int = 0
    reader: Any = field(init=False, default=None)

    def restart(self) -> None:
        """Take a new reader; go on from the checkpoint."""
        source = RocketMQSource(self.options)
        self.reader = source.streamReader(source.schema())
        if not self.planned:
            self.planned.append(json.dumps(self.reader.initialOffset()))
        self.limit = self.reader.getDefaultReadLimit()

    limit: Any = field(init=False, default=None)

    def available(self) -> list[Row]:
        """Run with trigger AvailableNow."""
        self.restart()
        found = self.batch() if len(self.planned) - 1 > self.done else []
        self.reader.prepareForTriggerAvailableNow()
        while self.plan():
            found += self.batch()
        return found

    def plan(self) -> bool:
        """Decide a batch; False: there is nothing new."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.planned[-1]), self.limit))
        if end == self.planned[-1]:
            return False
        self.planned.append(end)
        return True

    def batch(self) -> list[Row]:
        """Read the batch that was planned last."""
        start, end = map(json.loads, self.planned[self.done : self.done + 2])
        found = rows_of(self.reader, self.reader.partitions(start, end))
        self.done += 1
        self.reader.commit(end)
        return found

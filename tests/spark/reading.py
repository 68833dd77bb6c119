"""Reads tables as Spark's planner and tasks do, but in this process: their content does not depend on a JVM."""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import define, field
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinlog.cluster.pipeline.tables.datasource import SOURCES, RecordsSource
from twinlog.cluster.pipeline.tables.stream import Places, RecordStreamReader
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import RoleState, save_role

Row = dict[str, Any]
_SOURCES = {source.name(): source for source in SOURCES}


def _rows(reader: Any, parts: Iterable[InputPartition], schema: pa.Schema) -> list[Row]:
    """Rows of some parts; reader and parts go to tasks by pickle."""
    found: list[Row] = []
    for part in parts:
        task_reader, task_part = pickle.loads(pickle.dumps((reader, part)))
        for batch in task_reader.read(task_part):
            assert batch.schema.equals(schema)  # Spark accepts it in the first one only, and crashes otherwise.
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def rows(name: str, *roots: Path | str, filters: Iterable[Filter] = (), **options: str) -> list[Row]:
    """All rows of a table; the reader must accept all `filters`."""
    told = {"path": ",".join(map(str, roots)), "pushFilters": str(bool(filters)).lower()}
    source = _SOURCES[name](options | told)
    reader = source.reader(source.schema())
    if filters:
        assert isinstance(reader, DataSourceReader)
        assert list(reader.pushFilters(list(filters))) == []
    return _rows(reader, reader.partitions(), to_arrow_schema(source.schema(), timezone="UTC"))


@define
class Query:
    """A query that follows stores, and its checkpoint: batches started, and the number of completed ones."""

    options: dict[str, str]
    begun: list[Places] = field(factory=list)
    done: int = 0

    def run(self, take: Callable[[list[Row], int], None], **options: str) -> None:
        """Run with trigger AvailableNow: everything present, batch by batch."""
        source = RecordsSource(self.options | options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, RecordStreamReader)
        if not self.begun:
            self.begun.append(reader.initialOffset())
        if len(self.begun) - 1 > self.done:
            self._batch(reader, take)
        reader.prepareForTriggerAvailableNow()
        limit = reader.getDefaultReadLimit()
        while (end := reader.latestOffset(self.begun[-1], limit)) != self.begun[-1]:
            self.begun.append(end)
            self._batch(reader, take)

    def _batch(self, reader: RecordStreamReader, take: Callable[[list[Row], int], None]) -> None:
        start, end = self.begun[self.done : self.done + 2]
        take(_rows(reader, reader.partitions(start, end), reader.schema), self.done)
        self.done += 1


def noted(root: Path, confirmed: int) -> None:
    """Write what a member writes at a role change."""
    role = BrokerRole.SYNC_MASTER
    state = RoleState(role=role, broker_id=0, promised=EpochId(1, ""), group=None, told_confirmed=confirmed)
    save_role(root / "twinlog", state)

"""Batches of a stream into an Iceberg table, each once, by pyiceberg: Iceberg has no runtime for Spark 4.2 yet.

    frame.writeStream.foreachBatch(IcebergWriter(table, query="orders")).option("checkpointLocation", ...)

The number of the last batch is a property of the table, set in the same commit as the batch's rows; it stays when old snapshots
expire. Each snapshot's summary has it, too.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY, _BATCH = "twinlog.query", "twinlog.batch"


@define(eq=False)
class IcebergWriter:
    """For foreachBatch. `table` is a pyiceberg Table; `query` names the checkpoint: each one that writes there has its own name.

    Columns that the table lacks are added to it; rows that are there stay as they are. A batch is collected in the driver, so it
    has to fit into its memory. A query has one driver at a time, as Spark demands, too.
    """

    table: Any
    query: str

    def __call__(self, batch: "DataFrame", number: int) -> None:
        self.write(batch.toArrow(), number)

    def write(self, rows: pa.Table, number: int) -> bool:
        """Append the batch, unless the table has it; True if it was appended.

        Raises ReadRefusedError for columns of other types than the table's.
        """
        from pyiceberg.exceptions import ValidationError  # Of the extra `lake`.

        self.table.refresh()
        last = int(self.table.properties.get(self.property_name, -1))
        if number <= last:
            return False
        rows = _in_utc(rows)
        told = {_QUERY: self.query, _BATCH: str(number)}
        try:
            with self.table.transaction() as transaction:
                with transaction.update_schema() as schema:
                    schema.union_by_name(rows.schema)
                if rows.num_rows:
                    transaction.append(rows, snapshot_properties=told)
                transaction.set_properties({self.property_name: str(number)})
        except (ValidationError, TypeError, ValueError) as error:
            name = ".".join(self.table.name())
            raise ReadRefusedError(
                f"batch {number} does not fit into the table {name}, which has other types: {error}. Give its columns the types "
                "that are there, or write into another table."
            ) from error
        return True

    @property
    def property_name(self) -> str:
        """The table's property that has the number of the query's last batch."""
        return f"{_BATCH}.{self.query}"


def _in_utc(rows: pa.Table) -> pa.Table:
    """Times with the zone that Iceberg has; the instants stay."""
    fields = [
        each.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(each.type) and each.type.tz else each
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))

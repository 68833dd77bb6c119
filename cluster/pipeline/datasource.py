"""The tables of store directories, as Python data sources for Spark 4: see docs/reference/tables.md."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

SOURCES: tuple[type[DataSource], ...] = ()


def register(spark: SparkSession) -> None:
    """Make the tables known to a session by their names; twice is harmless."""
    for source in SOURCES:
        spark.dataSource.register(source)

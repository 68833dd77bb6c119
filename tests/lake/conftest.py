"""Tests of Delta and Iceberg, in .venv-lake: `scripts/test lake`. One Spark session for all, which knows Delta."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import FOR_FEW_ROWS, HERE, MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from twinlog.cluster.pipeline.jobs.delta import delta_settings
    from twinlog.cluster.pipeline.jobs.session import spark_session

    with pytest.MonkeyPatch.context() as environment:  # Workers inherit the JVM's environment.
        environment.setenv("PYTHONPATH", str(HERE.parents[1]))
        environment.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark")))
        quick = {"spark.databricks.delta.snapshotPartitions": "2", "spark.ui.enabled": "false"}
        session = spark_session(MASTER, name="tests", is_brief=True, more={**delta_settings(), **quick})
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        yield session
        session.stop()

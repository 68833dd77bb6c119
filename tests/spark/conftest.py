"""One Spark session for the whole suite: a JVM and its first Python workers take ten seconds to start.

A test that needs another master, or whose JVM may die, runs `twinlog` in a process of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.s3_server import CREDENTIALS, S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
FOR_FEW_ROWS = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
MASTER = "local[2,2]"  # Two tasks at once, and two tries each: with local[2] one worker that dies fails the job.


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session that knows all tables. Its workers have `tests` in their path, and the credentials of the local S3 server."""
    from twinlog.cluster.pipeline.jobs.session import (
        spark_session,  # Imported here: without Java these tests are skipped.
    )

    with pytest.MonkeyPatch.context() as environment:  # Workers inherit the JVM's environment.
        environment.setenv("PYTHONPATH", str(HERE.parents[1]))
        environment.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark")))
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        session = spark_session(MASTER, name="tests", is_brief=True)
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with an empty bucket."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server

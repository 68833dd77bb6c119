"""Script for spark-submit: a stream from a topic into Parquet files below OUT, by tasks of which one may be slow.

    follow_topic.py NAME_SERVER TOPIC OUT [--to-the-end]

With --to-the-end it ends when it has what the topic has now. The task that finds OUT/slow takes the file away, then lies still:
long enough for Spark to begin a second copy of it on another host. OUT/slow-task says which it was, OUT/attempts lists all tasks.
"""

import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

import twinlog
from twinlog.spark import spark_session

SLOW_S = 30
ROWS_PER_BATCH, AT_THE_END = "60", "5000"
COLUMNS = ("topic", "broker", "queueId", "queueOffset", "value")


def passed_on(out: Path, value: bytes) -> bytes:
    """The value as it came, the first one of a task sometimes late."""
    task = TaskContext.get()
    assert task is not None
    if getattr(sys, "task_seen", None) != task.taskAttemptId():  # A process of Python works on many tasks.
        sys.task_seen = task.taskAttemptId()
        with (out / "attempts").open("a") as attempts:  # Short lines are written whole.
            attempts.write(
                f"{task.stageId()} {task.partitionId()} {task.attemptNumber()} {Path.cwd()} {twinlog.__file__}\n"
            )
        with suppress(FileNotFoundError):
            (out / "slow").rename(out / "taken")
            (out / "slow-task").write_text(f"{task.stageId()} {task.partitionId()}")
            time.sleep(SLOW_S)
    return value


def main(name_server: str, topic: str, out: Path, to_the_end: bool) -> None:
    spark = spark_session(name="follow")
    options = {
        "nameServer": name_server,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": AT_THE_END if to_the_end else ROWS_PER_BATCH,
        "minPartitions": "4",
    }
    rows = spark.readStream.format("rocketmq").options(**options).load().select(*COLUMNS)
    slowly = f.udf(partial(passed_on, out), BinaryType()).asNondeterministic()
    writer = rows.withColumn("value", slowly("value")).writeStream.format("parquet").option("path", f"{out}/rows")
    writer = writer.option("checkpointLocation", f"{out}/checkpoint")
    writer = writer.trigger(availableNow=True) if to_the_end else writer.trigger(processingTime="0 seconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), "--to-the-end" in sys.argv)

"""Daily report on the output of export.py: messages, bytes, latency, top keys, and consumer lag.

    spark-submit cluster/pipeline/submit/daily.py --export DIR [--day 2026-11-22] [--snapshots DIR] [--out FILE.json]

Latency is measured from the client's clock to the broker's, and includes the difference between both; values below 0 count as 0.
A snapshot is a copy of a broker's config/consumerOffset.json with its time in its name: 20261122T130500Z, or ms since 1970.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from attrs import asdict, frozen
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from twinlog.cluster.pipeline.jobs.export import exported, settings_of
from twinlog.cluster.pipeline.jobs.messages import message_of
from twinlog.cluster.pipeline.jobs.session import spark_session
from twinlog.cluster.pipeline.jobs.snapshots import OffsetSnapshot, read_snapshots
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.store.util.text import agreeing

PERCENTILES = (50, 90, 99, 99.9)
_ACCURACY = 10_000  # Percentiles are accurate to 1/10,000 of the ranks.


@frozen(kw_only=True)
class TopicDay:
    """A topic on one day. Bytes are those of whole records, 0 from a running cluster; latencies in ms, by percentile.

    `clock_behind`: messages whose store time, by the broker's clock, is before their birth time, by the client's.
    """

    topic: str
    day: str
    messages: int
    bytes: int
    undecoded: int
    first_ms: int
    last_ms: int
    latency_ms: Mapping[str, int]
    latency_max_ms: int
    clock_behind: int
    top_keys: Sequence[tuple[str, int]]


@frozen(kw_only=True)
class LagPoint:
    """Lag of a group over all queues of a topic that were exported.

    `messages` None: no message of its queues was exported. `seconds`: age of the oldest message not consumed.
    """

    at_ms: int
    topic: str
    group: str
    messages: int | None
    seconds: float | None


@frozen(kw_only=True)
class DailyReport:
    """Messages by topic and day, and the history of lag."""

    topics: Sequence[TopicDay]
    lag: Sequence[LagPoint]

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def daily_report(
    spark: SparkSession, export: str, *, day: str | None = None, snapshots: Sequence[OffsetSnapshot] = (), top: int = 10
) -> DailyReport:
    """Report on one day, such as `2026-11-22` in UTC, or on all days. `top`: number of keys for each topic and day."""
    messages = exported(spark, export).withColumn("day", f.col("day").cast("string"))
    of_day = messages if day is None else messages.where(f.col("day") == day)
    keys = _top_keys(of_day, top)
    topics = [_topic_day(row.asDict(), keys) for row in _totals(of_day).collect()]
    points = snapshots if day is None else [each for each in snapshots if _day_of(each.at_ms) == day]
    return DailyReport(topics=tuple(topics), lag=tuple(lag_history(spark, messages, points)) if points else ())


def _day_of(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


def _ms(name: str) -> Column:
    return f.unix_millis(f.col(name))


def _totals(messages: DataFrame) -> DataFrame:
    latency = _ms("stored_at") - _ms("born_at")
    shares = [share / 100 for share in PERCENTILES]
    return (
        messages.withColumn("latency", f.greatest(latency, f.lit(0)))
        .groupBy("topic", "day")
        .agg(
            f.count("*").alias("messages"),
            f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
            f.count("problem").alias("undecoded"),
            f.min(_ms("stored_at")).alias("first_ms"),
            f.max(_ms("stored_at")).alias("last_ms"),
            f.percentile_approx("latency", shares, _ACCURACY).alias("percentiles"),
            f.max("latency").alias("latency_max_ms"),
            f.count_if(latency < 0).alias("clock_behind"),
        )
        .orderBy("topic", "day")
    )


def _top_keys(messages: DataFrame, top: int) -> dict[tuple[str, str], list[tuple[str, int]]]:
    key = f.explode(f.array_distinct(f.filter(f.split("keys", " "), lambda each: each != "")))
    counts = messages.select("topic", "day", key.alias("key")).groupBy("topic", "day", "key").count()
    rank = f.row_number().over(Window.partitionBy("topic", "day").orderBy(f.desc("count"), "key"))
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row in counts.withColumn("rank", rank).where(f.col("rank") <= top).orderBy("topic", "day", "rank").collect():
        found.setdefault((row["topic"], row["day"]), []).append((row["key"], row["count"]))
    return found


def _topic_day(row: dict[str, Any], keys: Mapping[tuple[str, str], Sequence[tuple[str, int]]]) -> TopicDay:
    percentiles = row.pop("percentiles")
    names = (f"{share:g}" for share in PERCENTILES)
    return TopicDay(
        **row,
        latency_ms=dict(zip(names, percentiles, strict=True)),
        top_keys=tuple(keys.get((row["topic"], row["day"]), ())),
    )


def lag_history(spark: SparkSession, messages: DataFrame, snapshots: Sequence[OffsetSnapshot]) -> list[LagPoint]:
    """Lag by topic and group at each snapshot: ends of the queues minus consumed offsets."""
    wanted = [
        (number, snapshot.at_ms, topic, group, queue_id, offset)
        for number, snapshot in enumerate(snapshots)
        for (topic, group, queue_id), offset in snapshot.offsets.items()
    ]
    if not wanted:
        return []
    columns = "number INT, at_ms BIGINT, topic STRING, consumer_group STRING, queue_id INT, consumed BIGINT"
    points = spark.createDataFrame(wanted, columns)
    topics = messages.select("topic").distinct()
    points = points.join(topics, "topic")
    ends = _ends(messages, [snapshot.at_ms for snapshot in snapshots], points)
    waiting = messages.select(
        "topic", "queue_id", f.col("queue_offset").alias("consumed"), _ms("stored_at").alias("since")
    )
    behind = (
        points.join(ends, ["number", "topic", "queue_id"], "left")
        .join(waiting, ["topic", "queue_id", "consumed"], "left")
        .withColumn("lag", f.when(f.col("end").isNotNull(), f.greatest(f.col("end") - f.col("consumed"), f.lit(0))))
    )
    rows = (
        behind.groupBy("at_ms", "topic", "consumer_group")
        .agg(f.sum("lag").alias("lag"), f.min(f.when(f.col("lag") > 0, f.col("since"))).alias("since"))
        .orderBy("at_ms", "topic", "consumer_group")
        .collect()
    )
    return [
        LagPoint(
            at_ms=row["at_ms"],
            topic=row["topic"],
            group=row["consumer_group"],
            messages=row["lag"],
            seconds=0.0 if row["lag"] == 0 else None if row["since"] is None else (row["at_ms"] - row["since"]) / 1000,
        )
        for row in rows
    ]


def _ends(messages: DataFrame, times: Sequence[int], points: DataFrame) -> DataFrame:
    """End of each queue at each snapshot: a message counts from the first snapshot taken after it was stored."""
    at = f.array(*(f.lit(time) for time in times))
    before = f.size(f.filter(at, lambda each: each < _ms("stored_at")))
    news = (
        messages.groupBy("topic", "queue_id", before.alias("first"))
        .agg((f.max("queue_offset") + 1).alias("end"))
        .withColumnRenamed("queue_id", "of_queue")
        .withColumnRenamed("topic", "of_topic")
    )
    queues = points.select("number", "topic", "queue_id").distinct()
    is_known = (
        (f.col("of_topic") == f.col("topic"))
        & (f.col("of_queue") == f.col("queue_id"))
        & (f.col("first") <= f.col("number"))
    )
    return queues.join(news, is_known).groupBy("number", "topic", "queue_id").agg(f.max("end").alias("end"))


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {agreeing(number, one, many or one + 's')}"


def show(report: DailyReport) -> None:
    """Print the report."""
    if not report.topics:
        click.echo("no messages were stored then")
    for topic in report.topics:
        latency = ", ".join(f"{share} %: {value} ms" for share, value in topic.latency_ms.items())
        size = f"{_counted(topic.messages, 'message')}, {_counted(topic.bytes, 'byte')}"
        click.echo(f"{topic.day} {topic.topic}: {size}")
        click.echo(f"  born to stored: {latency}, at most {topic.latency_max_ms} ms")
        if topic.clock_behind:
            click.echo(f"  {_counted(topic.clock_behind, 'message')} stored before production: clocks differ")
        if topic.undecoded:
            click.echo(f"  {_counted(topic.undecoded, 'body', 'bodies')} could not be decoded")
        if topic.top_keys:
            click.echo("  keys: " + ", ".join(f"{key} ({count:,})" for key, count in topic.top_keys))
    for point in report.lag:
        at = f"{datetime.fromtimestamp(point.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
        behind = "not known" if point.messages is None else _counted(point.messages, "message")
        seconds = "" if not point.seconds else f", {point.seconds:,.1f} s"
        click.echo(f"{at} {point.group} on {point.topic}: behind {behind}{seconds}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--export", "place", required=True, help="Output of export.py: a directory or URI.")
@click.option("--day", help="2026-11-22, in UTC. [default: all]")
@click.option("--snapshots", help="Directory or URI with copies of consumerOffset.json, for the history of lag.")
@click.option(
    "--top", type=click.IntRange(min=0), default=10, show_default=True, help="Number of keys for each topic and day."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the report there as JSON.")
@click.option("--spark-master", help="A URL as of spark-submit. [default: spark-submit's, else this machine]")
def main(
    place: str, day: str | None, snapshots: str | None, top: int, out: Path | None, spark_master: str | None
) -> None:
    """Report on a day of exported messages."""
    try:
        offsets = read_snapshots(snapshots) if snapshots is not None else []
        more = settings_of(place)
    except (ReadRefusedError, OSError) as error:
        raise click.ClickException(str(error)) from error
    spark = spark_session(spark_master, name="twinlog daily", more=more)
    try:
        report = daily_report(spark, place, day=day, snapshots=offsets, top=top)
    except PySparkException as error:
        raise click.ClickException(message_of(error)) from error
    finally:
        spark.stop()
    show(report)
    if out is not None:
        out.write_text(report.to_json() + "\n")

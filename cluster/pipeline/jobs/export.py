"""Streams topics of a store, or of a running cluster, into Parquet or Delta: JSON bodies as columns, bad rows in their own table.

A batch is a range of the source, fixed before it is read, and written under its number: into directories of its own, which it
replaces (Parquet), or in a transaction that Delta takes once. So every message is in the output once for every reader, however
often the job is stopped, killed and restarted.

    spark-submit cluster/pipeline/submit/export.py --path STORE --topic TOPIC --out DIR --schema 'id BIGINT, name STRING'
"""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import click
import orjson
from attrs import asdict, define, evolve, field, frozen
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from twinlog.cluster.pipeline.jobs import columns
from twinlog.cluster.pipeline.jobs.delta import delta_settings
from twinlog.cluster.pipeline.jobs.destination import (
    CLUSTER,
    DELTA,
    FORMATS,
    PARQUET,
    STORE,
    Marker,
    check_destination,
    read_marker,
    write_marker,
)
from twinlog.cluster.pipeline.jobs.messages import message_of
from twinlog.cluster.pipeline.jobs.session import spark_session
from twinlog.cluster.pipeline.sources.files import NotAStoreError
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import UnreadableError
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.cluster.pipeline.tables.options import read_options
from twinlog.cluster.pipeline.tables.stream import store_now
from twinlog.cluster.pipeline.tables.texts import list_of
from twinlog.cluster.pipeline.topics.datasource import ask, check_topics
from twinlog.cluster.pipeline.topics.options import read_options as read_topic_options
from twinlog.cluster.pipeline.topics.survey import Surveyor
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.store.util.text import agreeing

CHECKPOINT = "_checkpoint"  # Below the output; readers of tables skip such names.
_EVERY_S = 10


@frozen(kw_only=True)
class ExportOptions:
    """Source and destination. Either `path`, a store's directory or URI, or `namesrv`, HOST:PORT of a cluster's name servers.

    `topic`: one topic, or several separated by commas. `out` and `bad` are directories or URIs; `bad`: `out` with `-bad` by
    default. `schema` of JSON bodies is a list of columns as in SQL; without it bodies stay bytes. `broker` is HOST:PORT of the
    running broker of the store, which reports how much is confirmed. `checkpoint`: below `out` by default. `source`: more
    options of the source, such as accessKey.
    """

    topic: str
    out: str
    path: str | None = None
    namesrv: str | None = None
    format: str = PARQUET
    bad: str | None = None
    schema: str | None = None
    checkpoint: str | None = None
    broker: str | None = None
    unconfirmed: bool = False
    start: str = "earliest"
    bytes_per_batch: int = 256 << 20
    messages_per_batch: int = 1_000_000
    bounds: InflateLimits = field(factory=InflateLimits)
    source: Mapping[str, str] = field(factory=dict)

    @property
    def checkpoint_place(self) -> str:
        """Directory of the checkpoint."""
        return self.checkpoint or f"{self.out.rstrip('/')}/{CHECKPOINT}"

    @property
    def bad_place(self) -> str:
        """Directory of bad rows."""
        return self.bad or default_bad(self.out)

    @property
    def topics(self) -> tuple[str, ...]:
        """Sorted names."""
        return tuple(sorted(set(list_of(self.topic))))

    @property
    def of_reader(self) -> dict[str, str]:
        """Options of rocketmq_records, or of the source `rocketmq`."""
        if self.namesrv is not None:
            return {
                "nameServer": self.namesrv,
                "subscribe": self.topic,
                "startingOffsets": self.start,
                "maxOffsetsPerTrigger": str(self.messages_per_batch),
                "inflateSizeMax": str(self.bounds.size_max),
                "inflateRatioMax": str(self.bounds.ratio_max),
                **self.source,
            }
        texts = {
            "topics": self.topic,
            "inflate": "true",
            "inflateSizeMax": str(self.bounds.size_max),
            "inflateRatioMax": str(self.bounds.ratio_max),
            "unconfirmed": str(self.unconfirmed).lower(),
            "startingOffset": self.start,
            "maxBytesPerTrigger": str(self.bytes_per_batch),
            **self.source,
        }
        return texts if self.broker is None else {**texts, "broker": self.broker}

    @property
    def marker(self) -> Marker:
        """Identity of this export in its output, without its columns."""
        source = STORE if self.namesrv is None else CLUSTER
        return Marker(format=self.format, source=source, topics=self.topics, bad=self.bad or "")


@frozen(kw_only=True)
class ExportResult:
    """Counts of a run; `rows` and `bad` together are the messages that it read."""

    topic: str
    format: str
    out: str
    bad_out: str
    batches: int
    rows: int
    bad: int

    def __str__(self) -> str:
        return (
            f"{self.topic}: {_counted(self.rows, 'row')} in {_counted(self.batches, 'batch', 'batches')} into {self.out}, "
            f"{_counted(self.bad, 'bad row')}" + (f" into {self.bad_out}" if self.bad else "")
        )


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {agreeing(number, one, many or one + 's')}"


def default_bad(out: str) -> str:
    """Default place of bad rows."""
    return f"{out.rstrip('/')}-bad"


@define(eq=False)
class _BatchWriter:
    """Writes a batch, bad rows apart; the same batch again changes nothing. Runs in the driver; executors read and write."""

    options: ExportOptions
    query_id: "Future[str]" = field(factory=Future)  # Told after start(), while the first batch may be on its way.
    batches: int = 0
    rows: int = 0
    bad: int = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        batch = batch.persist()  # Read once for the count and both tables.
        try:
            (counts,) = batch.agg(f.count("*").alias("messages"), f.count("problem").alias("bad")).collect()
            bad = counts["bad"]
            good = counts["messages"] - bad
            for count, place, are_bad in ((good, self.options.out, False), (bad, self.options.bad_place, True)):
                if count:
                    self._write(columns.rows(batch, are_bad=are_bad), place, number)
        finally:
            batch.unpersist()
        self.batches += 1
        self.rows += good
        self.bad += bad

    def _write(self, rows: DataFrame, place: str, number: int) -> None:
        query = self.query_id.result()  # Kept in the checkpoint, so it is the same after a restart.
        if self.options.format == DELTA:
            once = {"txnAppId": f"twinlog-export-{query}", "txnVersion": str(number), "mergeSchema": "true"}
            rows.write.format(DELTA).mode("append").options(**once).partitionBy("topic", "day").save(place)
        else:
            rows = rows.withColumn("batch", f.lit(f"{query[:8]}-{number}"))
            writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy("topic", "day", "batch").parquet(place)


@define(eq=False)
class Export:
    """A running export."""

    query: StreamingQuery
    _writer: _BatchWriter

    def wait(self) -> ExportResult:
        """Wait for its end. Raises PySparkException where it fails."""
        self.query.awaitTermination()
        return self.result

    @property
    def result(self) -> ExportResult:
        """Counts so far."""
        wanted, done = self._writer.options, self._writer
        return ExportResult(
            topic=wanted.topic,
            format=wanted.format,
            out=wanted.out,
            bad_out=wanted.bad_place,
            batches=done.batches,
            rows=done.rows,
            bad=done.bad,
        )


def start_export(
    spark: SparkSession, options: ExportOptions, *, follow: bool = False, every_s: float = _EVERY_S
) -> Export:
    """Start, or continue an earlier run. Without `follow` the query ends after everything present at its start.

    With it a batch is taken every so many seconds. Raises ReadRefusedError for a destination that holds something else.
    """
    found = check_destination(options.marker, options.out, options.checkpoint_place, options.bad_place)
    schema = None if options.schema is None else columns.parse_schema(options.schema)
    if found is not None:
        _check_growth(found, schema)
    frame = columns.decoded(messages(spark, options), schema)
    write_marker(options.out, evolve(options.marker, schema=None if schema is None else schema.jsonValue()))
    writer = _BatchWriter(options)
    stream = (
        frame.writeStream.foreachBatch(writer)
        .option("checkpointLocation", options.checkpoint_place)
        .queryName(f"twinlog export {options.topic}")
    )
    query = (
        stream.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        if follow
        else stream.trigger(availableNow=True)
    ).start()
    writer.query_id.set_result(str(query.id))
    return Export(query, writer)


def _check_growth(found: Marker, schema: StructType | None) -> None:
    if found.schema is not None and schema is not None:
        columns.check_growth(StructType.fromJson(dict(found.schema)), schema)
    elif (found.schema is None) != (schema is None):
        kinds = ("bytes", "columns")
        raise ReadRefusedError(
            f"bodies are {kinds[found.schema is not None]} in rows that are there, and would be {kinds[schema is not None]} now. "
            "Export into an empty directory with a new checkpoint."
        )


def export(spark: SparkSession, options: ExportOptions) -> ExportResult:
    """Export everything present, and return what was written."""
    return start_export(spark, options).wait()


def messages(spark: SparkSession, options: ExportOptions) -> DataFrame:
    """The messages of the topics as a stream, in the columns of columns.py."""
    reader = spark.readStream.options(**options.of_reader)
    if options.namesrv is not None:
        return columns.of_cluster(reader.format("rocketmq").load())
    return columns.of_store(reader.format("rocketmq_records").load(options.path))


def exported(spark: SparkSession, out: str) -> DataFrame:
    """All messages of an export, bad rows among them, with the columns that both have and `problem`."""
    marker = _marker_of(out)
    if marker is None:  # Written by twinlog 0.2: one table.
        return spark.read.parquet(out)
    good = spark.read.format(marker.format).load(out).withColumn("problem", f.lit(None).cast("string"))
    bad_place = marker.bad or default_bad(out)
    try:
        bad = spark.read.format(marker.format).load(bad_place)
    except PySparkException as error:
        if error.getCondition() not in ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"):
            raise
        return good  # There is none.
    shared = [name for name in good.columns if name in bad.columns]
    return good.select(shared).unionByName(bad.select(shared))


def settings_for(format: str) -> dict[str, str]:
    """Settings of a session that reads or writes a format. Raises ReadRefusedError where it is not installed."""
    return delta_settings() if format == DELTA else {}


def settings_of(out: str) -> dict[str, str]:
    """The same for an output that is there."""
    marker = _marker_of(out)
    return {} if marker is None else settings_for(marker.format)


def _marker_of(out: str) -> Marker | None:
    try:
        return read_marker(out)
    except UnreadableError:
        return None


# ---- Command


def check_source(options: ExportOptions) -> None:
    """Refuse a source that cannot be read, without Spark. Raises ReadRefusedError, NotAStoreError, UnreadableError."""
    if (options.path is None) == (options.namesrv is None):
        raise ReadRefusedError("name one source: --path DIRECTORY of a store, or --namesrv HOST:PORT of a cluster")
    if not options.topics:
        raise ReadRefusedError("--topic names no topic")
    if options.path is not None:
        store_now(read_options({"path": options.path, **options.of_reader}), 0)
    elif options.broker is not None or options.unconfirmed:
        raise ReadRefusedError("--broker and --unconfirmed are for stores; a cluster's brokers are asked by themselves")
    else:
        _check_cluster(options)


def _check_cluster(options: ExportOptions) -> None:
    wanted = read_topic_options(options.of_reader, is_stream=True)
    try:
        check_topics(wanted, ask(wanted, Surveyor.survey))
    except RemotingError as error:
        servers = "; ".join(wanted.connection.name_servers)
        raise ReadRefusedError(
            f"no name server answers at {servers}: {error}. Check address, port, TLS and access keys."
        ) from error


def _more_options(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Options of the source from NAME=VALUE and NAME=@FILE."""
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not (name and mark):
            raise click.BadParameter(f"{text!r} is no NAME=VALUE")
        if value.startswith("@"):
            try:
                value = Path(value[1:]).read_text().strip()
            except (OSError, ValueError) as error:
                raise click.BadParameter(f"the file of {name} cannot be read: {error}") from error
        found[name] = value
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--path", help="Store directory, or its URI.")
@click.option("--namesrv", help="HOST:PORT of the name servers of a running cluster, separated by semicolons.")
@click.option("--topic", required=True, help="Topic, or several separated by commas.")
@click.option("--out", required=True, help="Directory or URI to write below.")
@click.option("--format", type=click.Choice(FORMATS), default=PARQUET, show_default=True)
@click.option("--bad", help="Directory or URI of rows that cannot be decoded. [default: OUT-bad]")
@click.option(
    "--schema", help="Columns of the JSON bodies, as in SQL: 'id BIGINT, name STRING'. Without: bodies as bytes."
)
@click.option("--checkpoint", help="Directory of the checkpoint. [default: OUT/_checkpoint]")
@click.option("--broker", help="HOST:PORT of the running broker of a store, which reports the confirmed offset.")
@click.option("--unconfirmed", is_flag=True, help="Read all sound records of a running store, confirmed or not.")
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    help="Start of a first run: earliest, latest, an offset of the store's log or, of a cluster, startingOffsets in JSON.",
)
@click.option("--follow", is_flag=True, help="Continue as messages come, until interrupted.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.1),
    default=_EVERY_S,
    show_default=True,
    help="Seconds, with --follow.",
)
@click.option("--bytes-per-batch", type=click.IntRange(min=1), default=256 << 20, show_default=True, help="Of a store.")
@click.option(
    "--messages-per-batch", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Of a cluster."
)
@click.option("--body-size-max", type=click.IntRange(min=1), default=64 << 20, show_default=True)
@click.option("--body-ratio-max", type=click.IntRange(min=1), default=200, show_default=True)
@click.option(
    "--source-option",
    "source",
    multiple=True,
    callback=_more_options,
    metavar="NAME=VALUE",
    help="More options of the source, such as accessKey=K; NAME=@FILE: what the file says, as for secretKey.",
)
@click.option("--spark-master", help="A URL as of spark-submit. [default: spark-submit's, else this machine]")
@click.option("-o", "output", type=click.Choice(("text", "json")), default="text", show_default=True)
def main(
    *,
    follow: bool,
    every_s: float,
    spark_master: str | None,
    body_size_max: int,
    body_ratio_max: int,
    output: str,
    **given: Any,
) -> None:
    """Stream the messages of a topic into tables, by topic and day. A later run continues where the last one ended.

    The last line counts what was written.
    """
    options = ExportOptions(**given, bounds=InflateLimits(size_max=body_size_max, ratio_max=body_ratio_max))
    try:
        # Refusals come before the start of Spark.
        more = settings_for(options.format)
        check_destination(options.marker, options.out, options.checkpoint_place, options.bad_place)
        check_source(options)
    except (ReadRefusedError, NotAStoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    spark = spark_session(spark_master, name=f"twinlog export {options.topic}", more=more)
    try:
        running = start_export(spark, options, follow=follow, every_s=every_s)
        try:
            result = running.wait()
        except KeyboardInterrupt:  # The usual end of a run with --follow.
            running.query.stop()
            result = running.result
    except (ReadRefusedError, PySparkException) as error:
        raise click.ClickException(message_of(error)) from error
    finally:
        spark.stop()
    click.echo(orjson.dumps(asdict(result)).decode() if output == "json" else str(result))

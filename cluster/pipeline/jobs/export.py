"""Streams a topic from a store, live or not, into Parquet: one directory for each topic and day, JSON bodies decoded.

Spark writes each batch under its number, and the next one begins where it ended. So every record is in the output once, however
often the job is stopped, killed and restarted, for readers that respect OUT/_spark_metadata, as Spark does.

    spark-submit cluster/pipeline/submit/export.py --path STORE --topic TOPIC --out DIR --schema 'id BIGINT, name STRING'
"""

import click
from attrs import field, frozen
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from twinlog.cluster.pipeline.jobs.session import message_of, spark_session
from twinlog.cluster.pipeline.sources.files import NotAStoreError
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import StoreUri, UnreadableError, list_files
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.cluster.pipeline.tables.options import read_options
from twinlog.cluster.pipeline.tables.stream import store_now
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK

CHECKPOINT = "_checkpoint"  # Below the output; readers of Parquet skip such names.
_CORRUPT = "_corrupt_record"
_DAY_MS = 24 * 60 * 60 * 1000
_AS_IN_SQL = "write columns as in SQL, 'id BIGINT, name STRING'"


@frozen(kw_only=True)
class ExportOptions:
    """Source and destination. `path` and `out` are directories or URIs; `topic`: one topic, or several separated by commas.

    `schema` of JSON bodies is a list of columns as in SQL; without it bodies stay bytes. `broker` is HOST:PORT of the running
    broker of the store, which reports how much is confirmed. `checkpoint`: below `out` by default.
    """

    path: str
    topic: str
    out: str
    schema: str | None = None
    checkpoint: str | None = None
    broker: str | None = None
    unconfirmed: bool = False
    start: str = "earliest"
    bytes_per_batch: int = 256 << 20
    bounds: InflateLimits = field(factory=InflateLimits)

    @property
    def checkpoint_place(self) -> str:
        """Directory of the checkpoint."""
        return self.checkpoint or f"{self.out.rstrip('/')}/{CHECKPOINT}"

    @property
    def of_reader(self) -> dict[str, str]:
        """Options of rocketmq_records."""
        texts = {
            "topics": self.topic,
            "inflate": "true",
            "inflateSizeMax": str(self.bounds.size_max),
            "inflateRatioMax": str(self.bounds.ratio_max),
            "unconfirmed": str(self.unconfirmed).lower(),
            "startingOffset": self.start,
            "maxBytesPerTrigger": str(self.bytes_per_batch),
        }
        return texts if self.broker is None else {**texts, "broker": self.broker}


def start_export(spark: SparkSession, options: ExportOptions, *, follow: bool = False) -> StreamingQuery:
    """Start, or continue an earlier run. Without `follow` the query ends after everything present at its start."""
    check_destination(options)
    writer = (
        messages(spark, options)
        .writeStream.format("parquet")
        .partitionBy("topic", "day")
        .option("path", options.out)
        .option("checkpointLocation", options.checkpoint_place)
        .queryName(f"twinlog export {options.topic}")
    )
    writer = writer.trigger(processingTime="1 second") if follow else writer.trigger(availableNow=True)
    return writer.start()


def check_destination(options: ExportOptions) -> None:
    """Refuse a destination that would lose batches: Spark numbers batches, and silently skips numbers that the output has.

    So an output has one checkpoint, and a checkpoint one output. Places that cannot be read here are not checked. Raises
    ReadRefusedError.
    """
    try:
        has_output = bool(list_files(StoreUri(options.out).child("_spark_metadata")))
        has_progress = bool(list_files(StoreUri(options.checkpoint_place).child("offsets")))
    except UnreadableError:
        return
    if has_output and not has_progress:
        raise ReadRefusedError(
            f"{options.out} holds an export already, which is not in {options.checkpoint_place}: Spark would skip new "
            "batches whose numbers it has. Name the checkpoint of that export, or an empty directory."
        )


def export(spark: SparkSession, options: ExportOptions) -> None:
    """Export everything present, and return."""
    start_export(spark, options).awaitTermination()


def messages(spark: SparkSession, options: ExportOptions) -> DataFrame:
    """The topic's messages as a stream, in the columns of the output."""
    # Half and rollback records are no messages of their topic.
    records = spark.readStream.format("rocketmq_records").options(**options.of_reader).load(options.path)
    records = records.where(~f.col("sys_flag").bitwiseAND(TRANSACTION_MASK).isin(*QUEUELESS))
    return decoded(records, options.schema)


def decoded(records: DataFrame, schema: str | None) -> DataFrame:
    """Columns of the output. A body that is not JSON of the schema is kept with a `problem`; nothing is lost."""
    # In UTC, independent of the session's time zone.
    day = f.date_from_unix_date(f.floor(f.col("stored_ms") / _DAY_MS).cast("int"))
    frame = records.select(
        "topic",
        day.cast("string").alias("day"),
        "offset",
        "size",
        "queue_id",
        "queue_offset",
        "unique_key",
        "tags",
        "keys",
        "properties",
        "reconsume_times",
        f.timestamp_millis("born_ms").alias("born_at"),
        f.timestamp_millis("stored_ms").alias("stored_at"),
        "body",
        f.col("body_problem").alias("problem"),
    )
    return frame if schema is None else _with_json(frame, schema)


def json_schema(text: str) -> StructType:
    """Columns as in SQL, `id BIGINT, name STRING`. Raises ReadRefusedError. Needs a session."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise ReadRefusedError(f"the schema {text!r} is invalid: {_AS_IN_SQL}") from error
    if not isinstance(found, StructType):
        raise ReadRefusedError(f"the schema {text!r} is a single type: {_AS_IN_SQL}")
    return found


def _with_json(frame: DataFrame, schema: str) -> DataFrame:
    """The rows with `body` as a struct, or null where it is no JSON; `undecoded` has its bytes then."""
    wanted = json_schema(schema)
    with_corrupt = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = f.col("body").cast("string")
    is_text = f.col("problem").isNull() & f.is_valid_utf8(text)
    frame = frame.withColumn("json", f.from_json(f.when(is_text, text), with_corrupt, options))
    is_wrong: Column = f.col("json").isNull() | f.col(f"json.{_CORRUPT}").isNotNull()
    body = f.struct(*(f.col("json")[each.name].alias(each.name) for each in wanted.fields))
    return frame.select(
        *(name for name in frame.columns if name not in ("body", "problem", "json")),
        f.when(~is_wrong, body).alias("body"),
        f.when(is_wrong, f.col("body")).alias("undecoded"),
        f.coalesce(f.col("problem"), f.when(is_wrong, f.lit("no JSON of the schema"))).alias("problem"),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--path", required=True, help="Store directory, or its URI.")
@click.option("--topic", required=True, help="Topic, or several separated by commas.")
@click.option("--out", required=True, help="Directory or URI to write below.")
@click.option(
    "--schema", help="Columns of the JSON bodies, as in SQL: 'id BIGINT, name STRING'. Without: bodies as bytes."
)
@click.option("--checkpoint", help="Directory of the checkpoint. [default: OUT/_checkpoint]")
@click.option("--broker", help="HOST:PORT of the running broker, which reports the confirmed offset.")
@click.option("--unconfirmed", is_flag=True, help="Read all sound records of a running store, confirmed or not.")
@click.option(
    "--start", default="earliest", show_default=True, help="Start of a first run: earliest, latest or an offset."
)
@click.option("--follow", is_flag=True, help="Continue as the log grows, until interrupted.")
@click.option("--bytes-per-batch", type=click.IntRange(min=1), default=256 << 20, show_default=True)
@click.option("--body-size-max", type=click.IntRange(min=1), default=64 << 20, show_default=True)
@click.option("--body-ratio-max", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--spark-master", help="A URL as of spark-submit. [default: spark-submit's, else this machine]")
def main(*, follow: bool, spark_master: str | None, body_size_max: int, body_ratio_max: int, **texts: str) -> None:
    """Stream the messages of a topic into Parquet, by topic and day. A later run continues where the last one ended."""
    bounds = InflateLimits(size_max=body_size_max, ratio_max=body_ratio_max)
    options = ExportOptions(**texts, bounds=bounds)  # type: ignore[arg-type]
    try:
        # Refusals come before the start of Spark.
        store_now(read_options({"path": options.path, **options.of_reader}), 0)
    except (ReadRefusedError, NotAStoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    spark = spark_session(spark_master, name=f"twinlog export {options.topic}")
    try:
        query = start_export(spark, options, follow=follow)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:  # The usual end of a run with --follow.
            query.stop()
    except (ReadRefusedError, PySparkException) as error:
        raise click.ClickException(message_of(error)) from error
    finally:
        spark.stop()

"""Columns of an export: what both sources have in common, JSON bodies as columns, and how their schema may grow.

A JSON field that the schema does not name is kept as text in `other_fields`, so a column that is added later loses nothing: rows
from before have its values there.
"""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK

OF_BAD_ROWS, OF_ROWS = ("undecoded", "problem"), ("body", "other_fields")  # Only there.
_CORRUPT = "_corrupt_record"
_NO_JSON = "no JSON of the schema"
_AS_IN_SQL = "write columns as in SQL, 'id BIGINT, name STRING'"
_SHARED = ("unique_key", "tags", "keys", "properties", "reconsume_times", "born_at", "stored_at", "body", "problem")


def of_store(records: DataFrame) -> DataFrame:
    """Messages of rocketmq_records. Half and rollback records are no messages of their topic."""
    records = records.where(~f.col("sys_flag").bitwiseAND(TRANSACTION_MASK).isin(*QUEUELESS))
    return records.withColumns(
        {
            "day": _day("stored_ms"),
            "born_at": f.timestamp_millis("born_ms"),
            "stored_at": f.timestamp_millis("stored_ms"),
            "problem": f.col("body_problem"),
        }
    ).select("topic", "day", "offset", "size", "queue_id", "queue_offset", *_SHARED)


def of_cluster(messages: DataFrame) -> DataFrame:
    """Messages of format `rocketmq`; `broker` stands before the offsets, which are of its log and its queues."""
    names = {
        "offset": "physicalOffset",
        "queue_id": "queueId",
        "queue_offset": "queueOffset",
        "reconsume_times": "reconsumeTimes",
        "born_at": "bornTimestamp",
        "stored_at": "storeTimestamp",
        "body": "value",
        "problem": "valueProblem",
    }
    messages = messages.withColumns({name: f.col(theirs) for name, theirs in names.items()})
    messages = messages.withColumns(
        {
            "day": _day(f.unix_millis("stored_at")),
            "size": f.lit(None).cast("int"),  # Of the record: only the store knows it.
            "unique_key": f.try_element_at("properties", f.lit("UNIQ_KEY")),
        }
    )
    return messages.select("topic", "day", "broker", "offset", "size", "queue_id", "queue_offset", *_SHARED)


def _day(stored_ms: str | Column) -> Column:
    """In UTC, independent of the session's time zone."""
    ms = f.col(stored_ms) if isinstance(stored_ms, str) else stored_ms
    return f.date_from_unix_date(f.floor(ms / (24 * 60 * 60 * 1000)).cast("int")).cast("string")


def parse_schema(text: str) -> StructType:
    """Columns as in SQL, `id BIGINT, name STRING`. Raises ReadRefusedError. Needs a session."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise ReadRefusedError(f"the schema {text!r} is invalid: {_AS_IN_SQL}") from error
    if not isinstance(found, StructType):
        raise ReadRefusedError(f"the schema {text!r} is a single type: {_AS_IN_SQL}")
    _check_names(found)
    return found


def _check_names(schema: StructType) -> None:
    lowered = [each.name.lower() for each in schema.fields]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise ReadRefusedError(f"the schema has {twice[0]} twice; upper and lower case are one name in tables")


def check_growth(there: DataType, wanted: DataType, name: str = "") -> None:
    """Refuse a schema that contradicts the one of rows that are there: it may only have more columns, at any depth.

    Raises ReadRefusedError, naming the column.
    """
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        ours = {each.name.lower(): each for each in wanted.fields}
        for each in there.fields:
            column = f"{name}.{each.name}".lstrip(".")
            now = ours.get(each.name.lower())
            if now is None or now.name != each.name:
                raise ReadRefusedError(
                    f"the schema lacks column {column}, which rows that are there have: name all of their columns, and new ones"
                )
            check_growth(each.dataType, now.dataType, column)
    elif isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        check_growth(there.elementType, wanted.elementType, f"{name}[]")
    elif isinstance(there, MapType) and isinstance(wanted, MapType):
        check_growth(there.keyType, wanted.keyType, f"{name}.key")
        check_growth(there.valueType, wanted.valueType, f"{name}.value")
    elif there != wanted:
        raise ReadRefusedError(
            f"column {name} is {_sql(there)} in rows that are there, and {_sql(wanted)} in the schema: a column of a table "
            "has one type. Give it its old type, or export into an empty directory with a new checkpoint."
        )


def _sql(kind: DataType) -> str:
    return kind.simpleString().upper()


def decoded(messages: DataFrame, schema: StructType | None) -> DataFrame:
    """Bodies as structs of the schema's columns, and `other_fields`. What is no such JSON has a `problem`, and `undecoded` bytes.

    Without a schema bodies stay bytes, and only what could not be inflated has a problem.
    """
    if schema is None:
        problem = f.col("problem").isNotNull()
        return messages.withColumn("undecoded", f.when(problem, f.col("body"))).withColumn(
            "body", f.when(~problem, f.col("body"))
        )
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = f.col("body").cast("string")
    is_text = f.col("problem").isNull() & f.is_valid_utf8(text)
    frame = messages.withColumn("text", f.when(is_text, text))
    frame = frame.withColumn("json", f.from_json("text", with_corrupt, options))
    is_wrong: Column = f.col("json").isNull() | f.col(f"json.{_CORRUPT}").isNotNull()
    body = f.struct(*(f.col("json")[each.name].alias(each.name) for each in schema.fields))
    return frame.select(
        *(name for name in messages.columns if name not in ("body", "problem")),
        f.when(~is_wrong, body).alias("body"),
        f.when(~is_wrong, _others("text", schema)).alias("other_fields"),
        f.when(is_wrong, f.col("body")).alias("undecoded"),
        f.coalesce(f.col("problem"), f.when(is_wrong, f.lit(_NO_JSON))).alias("problem"),
    )


def _others(text: str, schema: StructType) -> Column:
    """Fields that the schema does not name, with their JSON as text; null for none."""
    named = [f.lit(each.name) for each in schema.fields]

    def is_other(name: Column, _value: Column) -> Column:
        return ~name.isin(*named)

    others = f.map_filter(f.from_json(text, "MAP<STRING, STRING>"), is_other)
    return f.when(f.size(others) > 0, others)


def rows(frame: DataFrame, *, are_bad: bool) -> DataFrame:
    """The good rows of what `decoded` gave, or the bad ones, in the columns of their table."""
    problem: Any = f.col("problem")
    return frame.where(problem.isNotNull() if are_bad else problem.isNull()).drop(
        *(OF_ROWS if are_bad else OF_BAD_ROWS)
    )

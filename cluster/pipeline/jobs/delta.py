"""Delta tables by Spark itself: the jars, which lie in the environment of the extra `lake`, and a session's settings for them.

Delta's jars are made for one version of Spark. scripts/setup --lake fetches those of requirements/delta.xml; nothing is fetched
when a job runs, unless spark-submit is told so by --packages.
"""

import os
import sys
from importlib import metadata
from pathlib import Path

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError

JARS_VARIABLE = "TWINLOG_DELTA_JARS"
_OF_SPARK = "4.2"  # As in the name of delta-spark_4.2_2.13.
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_SETTINGS = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jar_directory() -> Path:
    """Directory of the jars: TWINLOG_DELTA_JARS, else share/twinlog/delta of this environment."""
    named = os.environ.get(JARS_VARIABLE)
    return Path(named) if named else Path(sys.prefix, "share", "twinlog", "delta")


def delta_settings() -> dict[str, str]:
    """Settings of a session for Delta. Raises ReadRefusedError where it is not installed.

    Below spark-submit the jars are its matter: --jars or --packages; what is missing then is found by Spark.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return dict(_SETTINGS)
    version = metadata.version("pyspark")
    if version.rpartition(".")[0] != _OF_SPARK:
        raise ReadRefusedError(
            f"format delta: Delta's jars are for Spark {_OF_SPARK}, and this environment has pyspark {version}. Use that of the "
            "extra `lake`: scripts/setup --lake makes .venv-lake. Or write format parquet."
        )
    jars = sorted(jar_directory().glob("*.jar"))
    if not any(jar.name.startswith(f"delta-spark_{_OF_SPARK}_") for jar in jars):
        raise ReadRefusedError(
            f"format delta is not installed: {jar_directory()} has no delta-spark_{_OF_SPARK}_*.jar. scripts/setup --lake "
            f"fetches the jars of requirements/delta.xml; {JARS_VARIABLE} names another directory. Or write format parquet."
        )
    return {**_SETTINGS, "spark.jars": ",".join(map(str, jars))}

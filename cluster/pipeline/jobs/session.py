"""The Spark session of twinlog's jobs: all that they need set, in one place.

Spark's Python workers are started from PATH unless they are told otherwise, filters are pushed to Python sources only where that
is switched on, and one dead Python worker fails a job on local[N]: local[N,4] tries its task again.
"""

import atexit
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from pyspark import SparkContext
from pyspark.sql import SparkSession

TASK_TRIES = 4
_IN_HASTE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
# Workers are started with `python -m`, which imports from their directory first without it.
_SAFE_PATH = "PYTHONSAFEPATH"
# What readers refuse, in the trace of the worker in which they did.
_REFUSAL = re.compile(
    r"^twinlog\.cluster\.pipeline\.[\w.]+\.(?:ReadRefusedError|NotAStoreError|UnreadableError): (.+)$", re.MULTILINE
)
_ON_THIS_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def local_master() -> str:
    """As many tasks at once as this process has cores."""
    return f"local[{len(os.sched_getaffinity(0))},{TASK_TRIES}]"


def spark_session(
    master: str | None = None, *, name: str = "twinlog", with_tables: bool = True, is_brief: bool = False
) -> SparkSession:
    """The session there is, or a new one, in which the tables of datasource.py can be read.

    `master` is a URL as of spark-submit. None: the one that spark-submit was told, else this machine. `with_tables` False: not
    for queries, which saves a second or two. `is_brief`: the JVM does little but hand out tasks, so compiles in haste.
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = local_master()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(_SAFE_PATH, "1")  # Some of its Python workers inherit only what the JVM had.
    builder = SparkSession.Builder().appName(name)
    settings = {_PUSH_DOWN: "true", f"spark.executorEnv.{_SAFE_PATH}": "1"}
    if not is_submitted:  # Else its JVM runs already, with its own.
        of_jvm = [*_quiet_logs(), *(_IN_HASTE if is_brief else ())]
        settings |= {"spark.driver.extraJavaOptions": " ".join(of_jvm)} if of_jvm else {}
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings |= _ON_THIS_MACHINE | {"spark.sql.shuffle.partitions": str(2 * len(os.sched_getaffinity(0)))}
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if is_submitted:
        _ship_wheels(session.sparkContext)
    return prepare(session) if with_tables else session


def prepare(spark: SparkSession) -> SparkSession:
    """Make the tables readable in a session that somebody else made: a notebook's, a cluster's."""
    from twinlog.cluster.pipeline.tables.datasource import register  # Not for an audit: it would wait for the import.

    spark.conf.set(_PUSH_DOWN, "true")
    register(spark)
    return spark


def words_of(error: Exception) -> str:
    """What a person needs of an error of Spark's: the reader's own sentence, or Spark's first line."""
    refusal = _REFUSAL.search(str(error))
    return refusal[1] if refusal is not None else str(error).partition("\n")[0]


def _ship_wheels(context: SparkContext) -> None:
    """Wheels of --py-files reach executors, which import from nothing but .zip, .egg and .jar: a wheel is a zip."""
    for path in (context.getConf().get("spark.submit.pyFiles") or "").split(","):
        if path.endswith(".whl"):
            directory = mkdtemp(prefix="twinlog-")  # Executors fetch it later.
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            context.addPyFile(shutil.copy(path.removeprefix("file://"), f"{directory}/{Path(path).stem}.zip"))


def _quiet_logs() -> Sequence[str]:
    """Spark's own lines are for who debugs Spark: errors only, also while it starts."""
    file = Path(__file__).with_name("log4j2.properties")
    return [f"-Dlog4j2.configurationFile={file.as_uri()}"] if file.is_file() else []

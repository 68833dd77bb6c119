"""Spark session for twinlog's jobs, with all its settings in one place.

Spark starts Python workers from PATH by default, pushes filters to Python sources only if configured, and fails a job on local[N]
after one dead Python worker: local[N,4] tries its task again.
"""

import atexit
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp

from pyspark import SparkContext
from pyspark.sql import SparkSession

from twinlog.cluster.pipeline.jobs.messages import tell_messages_first

TASK_TRIES = 4
_IN_HASTE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
# Without it workers, which run `python -m`, import from their working directory first.
_SAFE_PATH = "PYTHONSAFEPATH"
_ON_THIS_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def local_master() -> str:
    """As many concurrent tasks as this process has cores."""
    return f"local[{len(os.sched_getaffinity(0))},{TASK_TRIES}]"


def spark_session(
    master: str | None = None,
    *,
    name: str = "twinlog",
    with_tables: bool = True,
    is_brief: bool = False,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """The current session, or a new one, which can read the tables of datasource.py and running clusters (format rocketmq).

    `master` is a URL as of spark-submit. None: the one given to spark-submit, else this machine. `with_tables` False: without
    tables, which saves a second or two. `is_brief`: the JVM only hands out tasks, so it compiles with little optimisation.
    `more`: other settings, such as delta_settings().
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = local_master()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(_SAFE_PATH, "1")  # Some Python workers inherit only the JVM's environment.
    builder = SparkSession.Builder().appName(name)
    settings = {_PUSH_DOWN: "true", f"spark.executorEnv.{_SAFE_PATH}": "1"}
    if not is_submitted:  # Otherwise the JVM already runs with its own.
        of_jvm = [*_quiet_logs(), *(_IN_HASTE if is_brief else ())]
        settings |= {"spark.driver.extraJavaOptions": " ".join(of_jvm)} if of_jvm else {}
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings |= _ON_THIS_MACHINE | {"spark.sql.shuffle.partitions": str(2 * len(os.sched_getaffinity(0)))}
    for key, value in {**settings, **(more or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if is_submitted:
        _ship_wheels(session.sparkContext)
    return prepare(session) if with_tables else session


def prepare(spark: SparkSession) -> SparkSession:
    """Register the tables, and format rocketmq, in an existing session, such as a notebook's.

    From then on an error of theirs that nobody catches begins with its message, before Python's traceback.
    """
    from twinlog.cluster.pipeline.tables.datasource import register  # Slow to import, and not needed for an audit.
    from twinlog.cluster.pipeline.topics.datasource import RocketMQSource

    spark.conf.set(_PUSH_DOWN, "true")
    register(spark)
    spark.dataSource.register(RocketMQSource)
    tell_messages_first()
    return spark


def _ship_wheels(context: SparkContext) -> None:
    """Copy wheels of --py-files to .zip: executors import only from .zip, .egg and .jar, and a wheel is a zip."""
    for path in (context.getConf().get("spark.submit.pyFiles") or "").split(","):
        if path.endswith(".whl"):
            directory = mkdtemp(prefix="twinlog-")  # Executors fetch it later.
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            context.addPyFile(shutil.copy(path.removeprefix("file://"), f"{directory}/{Path(path).stem}.zip"))


def _quiet_logs() -> Sequence[str]:
    """Limit Spark's log to errors, also during its start."""
    file = Path(__file__).with_name("log4j2.properties")
    return [f"-Dlog4j2.configurationFile={file.as_uri()}"] if file.is_file() else []

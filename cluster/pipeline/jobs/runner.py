"""Runs lists of tasks on Spark, with progress and interruption, and past tasks that kill their worker."""

import gc
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field
from py4j.protocol import Py4JError, Py4JJavaError

from twinlog.store.util.progress import Progress

if TYPE_CHECKING:
    from pyspark import RDD, Accumulator, SparkContext


T = TypeVar("T")
R = TypeVar("R")
_POLL_SECONDS = 0.2
_TASKS_PER_CORE = 4
# Spark's messages after a worker or an executor died as often as its master URL allows.
_DEATHS = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "Unable to create executor",
    "worker lost",
    "MemoryError",
    "OutOfMemoryError",
)
_LOCALITY_WAIT = "spark.locality.wait"
_SHUT_DOWN = "SparkContext was shut down"


class SparkUnusableError(Exception):
    """Spark cannot be started, or, with `is_late`, ended during the work."""

    def __init__(self, why: str, *, is_late: bool = False) -> None:
        super().__init__(why)
        self.is_late = is_late


class WorkersDiedError(Exception):
    """No worker survived some task of a job. The message is Spark's."""


@define(eq=False)
class TaskRunner:
    """Access to Spark for one audit; `done` counts the bytes processed by tasks."""

    context: "SparkContext"
    progress: Progress
    host_of: Callable[[Any], str | None] = lambda _: None  # The host that a task should run on, if any.
    total: int = 0
    done: "Accumulator[int]" = field(init=False)
    _group: str = field(factory=lambda: f"twinlog-{uuid.uuid4()}", init=False)

    def __attrs_post_init__(self) -> None:
        self.done = self.context.accumulator(0)

    @property
    def cores(self) -> int:
        """Tasks that run at once, as far as Spark knows yet."""
        return max(1, self.context.defaultParallelism)

    def expect(self, size: int) -> None:
        """Add to the total of bytes to process."""
        self.total += size

    def spread(self, tasks: Sequence[T]) -> "RDD[T]":
        """Distribute tasks over enough partitions to keep all cores busy to the end."""
        if not tasks:
            return self.context.emptyRDD()
        hosts = [self.host_of(task) for task in tasks]
        if any(hosts):
            return placed(self.context, tasks, hosts).mapPartitions(_frozen)
        slices = max(1, min(len(tasks), max(self.cores * _TASKS_PER_CORE, len(tasks) // 8)))
        return self.context.parallelize(tasks, slices).mapPartitions(_frozen)

    def collect(self, rdd: "RDD[R]") -> list[R]:
        """Run a job in a thread, so that progress is shown and Ctrl-C works.

        Raises WorkersDiedError and SparkUnusableError.
        """
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self._in_group, rdd)
            try:
                while wait([future], timeout=_POLL_SECONDS).not_done:
                    self._tell()
                return future.result()
            except Py4JJavaError as error:
                message = _message(error)
                if any(death in message for death in _DEATHS):
                    raise WorkersDiedError(_first_line(message)) from error
                if _SHUT_DOWN in message:
                    raise SparkUnusableError(f"it ended while it worked: {message[:200]}", is_late=True) from error
                raise
            except (Py4JError, ConnectionError, EOFError) as error:
                raise SparkUnusableError(f"it ended while it worked: {error}", is_late=True) from error
            except BaseException:
                self.context.cancelJobGroup(self._group)
                raise
            finally:
                self._tell()

    def collect_robust(
        self, units: "Sequence[Sequence[T]]", job: "Callable[[RDD[T]], RDD[R]]"
    ) -> "tuple[list[R], list[tuple[Sequence[T], str]]]":
        """Results of all tasks, and the units that no worker survived, with Spark's message.

        Tasks of one unit are never in different jobs.
        """
        if not units:  # A job for nothing takes Spark a while, too.
            return [], []
        try:
            return self.collect(job(self.spread([task for unit in units for task in unit]))), []
        except WorkersDiedError as error:
            if len(units) == 1:
                return [], [(units[0], str(error))]
        middle = len(units) // 2
        first, second = (self.collect_robust(half, job) for half in (units[:middle], units[middle:]))
        return first[0] + second[0], first[1] + second[1]

    def _in_group(self, rdd: "RDD[R]") -> list[R]:
        self.context.setJobGroup(self._group, "twinlog audit", interruptOnCancel=True)
        return rdd.collect()

    def _tell(self) -> None:
        if self.total:
            self.progress(min(self.total, self.done.value), self.total)


def _frozen(tasks: Iterable[T]) -> Iterable[T]:
    """The same tasks. A worker of PySpark collects garbage after each partition: all that was there before it is left out."""
    gc.freeze()
    return tasks


def placed(context: "SparkContext", tasks: Sequence[T], hosts: Sequence[str | None]) -> "RDD[T]":
    """The tasks, a partition each, which Spark runs on their hosts as long as these have executors.

    PySpark cannot say where a partition should run. SparkContext.makeRDD of Scala can, and what is mapped from such an RDD
    inherits it. Another host takes a task when its own had no place for it for a minute.
    """
    from pyspark import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    jvm: Any = context._jvm
    spark: Any = context._jsc.sc()
    serializer: Any = BatchedSerializer(CPickleSerializer(), 1)  # type: ignore[no-untyped-call]
    pairs = jvm.java.util.ArrayList()
    for task, host in zip(tasks, hosts, strict=True):
        names = jvm.java.util.ArrayList()
        if host is not None:
            names.add(host)
        pairs.add(jvm.scala.Tuple2(bytearray(serializer.serializer.dumps([task])), jvm.PythonUtils.toSeq(names)))
    tag = context._jsc.emptyRDD().classTag()  # Of any object; py4j does not reach Scala's companion objects.
    spark.conf().set(_LOCALITY_WAIT, "60s")  # Read for each set of tasks.
    found = spark.makeRDD(jvm.PythonUtils.toSeq(pairs), tag).toJavaRDD()
    return RDD(found, context, serializer)


def _message(error: Py4JJavaError) -> str:
    try:
        return str(error.java_exception.toString())
    except (Py4JError, OSError):
        return str(error)


def _first_line(message: str) -> str:
    """The message without Java's stack trace."""
    lines: Iterable[str] = (line.strip() for line in message.splitlines() if line.strip())
    found: Any = next((line for line in lines if any(death in line for death in _DEATHS)), message[:200])
    return f"a worker of Spark died of it each time: {found}"[:300]

"""Runs the audit's job as Spark does, task by task, but in this process: what it finds does not depend on a JVM."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import define, evolve, field, frozen

from twinlog.cluster.pipeline.audit.report import AuditReport
from twinlog.cluster.pipeline.audit.stores import inspect_all
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit_with


def sent(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


@frozen
class Tasks:
    """The part of an RDD's interface that the job uses; one partition."""

    items: tuple[Any, ...]

    def map(self, work: Callable[[Any], Any]) -> "Tasks":
        return Tasks(sent(tuple(map(work, self.items))))

    def flatMap(self, work: Callable[[Any], Iterable[Any]]) -> "Tasks":  # noqa: N802 - PySpark's name.
        return Tasks(sent(tuple(found for item in self.items for found in work(item))))

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterable[Any]]) -> "Tasks":  # noqa: N802 - PySpark's name.
        return Tasks(sent(tuple(work(iter(self.items)))))

    def groupByKey(self, partitions: int) -> "Tasks":  # noqa: N802 - PySpark's name.
        assert partitions > 0
        groups: dict[Any, list[Any]] = {}
        for key, value in self.items:
            groups.setdefault(key, []).append(value)
        return Tasks(tuple(groups.items()))


@define(eq=False)
class TaskRunner:
    """As twinlog.cluster.pipeline.jobs.runner.TaskRunner."""

    host_of: Callable[[Any], str | None] = lambda _: None
    cores: int = 2
    total: int = 0
    counted: int = 0
    hosts: list[tuple[Any, str | None]] = field(factory=list, init=False)  # Of each task.
    context: Any = field(init=False)
    done: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.done = SimpleNamespace(add=self._count)
        self.context = SimpleNamespace(broadcast=self._broadcast)

    def _count(self, size: int) -> None:
        self.counted += size

    def _broadcast(self, value: Any) -> Any:
        return SimpleNamespace(value=sent(value), unpersist=lambda: None)

    def expect(self, size: int) -> None:
        self.total += size

    def spread(self, tasks: Sequence[Any]) -> Tasks:
        self.hosts += ((task, self.host_of(task)) for task in tasks)
        return Tasks(sent(tuple(tasks)))

    def collect(self, tasks: Tasks) -> list[Any]:
        return list(tasks.items)

    def collect_robust(
        self, units: Sequence[Sequence[Any]], job: Callable[[Tasks], Tasks]
    ) -> tuple[list[Any], list[Any]]:
        return self.collect(job(self.spread([task for unit in units for task in unit]))), []


def audited(*roots: Path, runner: TaskRunner | None = None, **options: Any) -> AuditReport:
    """The report of an audit, without the times in it."""
    report = audit_with(runner or TaskRunner(), inspect_all(list(map(str, roots))), AuditOptions(**options))
    return evolve(report, started_ms=0, seconds=0.0)

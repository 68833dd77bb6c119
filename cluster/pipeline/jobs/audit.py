"""Audit of store directories on Spark: only digests of blocks are shuffled, records are compared where digests differ.

    inspect   each member once, in the driver: its files, start and end of its log
    digests   a task reads a split of 64 MiB of one log; the digests of one split of all logs are compared in one task
    compare   each differing range, record by record over all members, in a task
    tables    queues, index and configuration of each member, in tasks; records that members have alike are read of one of them

Parts that cannot be read, and parts that no worker survives, are named in the report; the rest is audited.
"""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from twinlog.cluster.pipeline.audit import tasks
from twinlog.cluster.pipeline.audit.assembly import assembled
from twinlog.cluster.pipeline.audit.compare import ByteRange, LogBounds, nothing_in_common
from twinlog.cluster.pipeline.audit.completeness import incomplete
from twinlog.cluster.pipeline.audit.config_tables import compare_tables, read_tables
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass, settled
from twinlog.cluster.pipeline.audit.parts import LogPart, parts_alone, parts_together, unequal_ranges
from twinlog.cluster.pipeline.audit.report import LOG_CLASSES, AuditedMember, AuditReport
from twinlog.cluster.pipeline.audit.side_tables import extent_of, file_ranges, members_with_losses, own_findings
from twinlog.cluster.pipeline.audit.stores import (
    Store,
    as_it_is_now,
    before_unreadable_end,
    bounded,
    inspect_all,
    is_known,
    split_size,
    without_secrets,
)
from twinlog.cluster.pipeline.audit.tasks import Differing, MemberParts, MemberSplit, SplitCompared, different_blocks
from twinlog.cluster.pipeline.jobs.runner import SparkUnusableError, TaskRunner, WorkersDiedError
from twinlog.cluster.pipeline.jobs.session import spark_session
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split, splits
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.offline.verify.digest_check import NOTHING_COMPARED, ComparedDigests
from twinlog.store.util.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast

    from twinlog.store.offline.verify.verify import VerifyReport

__all__ = ["AuditOptions", "SparkUnusableError", "audit", "audit_stores", "audit_with", "started"]


@frozen(kw_only=True)
class AuditOptions:
    """Options of an audit. `with_tables`: also check queues, index, configuration and offsets of each member.

    `split_size`: bytes of a log that one task reads, a multiple of 64 KiB; None: chosen by the total size.
    `each_alone`: read the records of each member, also where their digests say that another has the same. `hosts`: for each
    member the host whose disk has it, as Spark calls it, where its files are read then; None: any.
    """

    split_size: int | None = None
    with_tables: bool = True
    each_alone: bool = False
    hosts: tuple[str | None, ...] = ()


@contextmanager
def started(master: str | None) -> Iterator[tuple[SparkSession, float]]:
    """A Spark session without tables, and the seconds that its start took. `master`: as for spark_session().

    Raises SparkUnusableError.
    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SparkUnusableError("Java is required and was not found")
    began = time.monotonic()
    with TemporaryFile() as stderr:
        try:
            with _stderr_to(stderr.fileno()):
                spark = spark_session(master, with_tables=False, is_brief=True)
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            stderr.seek(0)
            lines = [line for line in stderr.read().decode(errors="replace").splitlines() if line.strip()]
            raise SparkUnusableError(f"it does not start: {error}; {' '.join(lines[-3:])}") from error
    try:
        yield spark, time.monotonic() - began
    finally:
        spark.stop()


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """Redirect what the JVM writes to stderr: it only helps to debug Spark."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # It already runs, as our parent.
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def audit(
    spark: SparkSession,
    members: Sequence[StoreUri],
    options: AuditOptions | None = None,
    progress: Progress = no_progress,
) -> AuditReport:
    """Compare the stores of a log's members, the master's first. Raises SparkUnusableError when Spark ends early."""
    return audit_stores(spark, inspect_all(members), options or AuditOptions(), progress)


def audit_stores(
    spark: SparkSession, stores: Sequence[Store], options: AuditOptions, progress: Progress
) -> AuditReport:
    """Compare stores that were inspected already."""
    return audit_with(TaskRunner(spark.sparkContext, progress), stores, options)


def audit_with(runner: TaskRunner, stores: Sequence[Store], options: AuditOptions) -> AuditReport:
    """The same by a runner of tasks."""
    return _Audit(runner, stores, options).run()


@define(eq=False)
class _Audit:
    """One audit. Members are identified by their number."""

    runner: TaskRunner
    stores: Sequence[Store]
    options: AuditOptions
    files: dict[int, StoreFiles] = field(init=False)
    sides: dict[int, LogBounds] = field(init=False)
    findings: list[AuditFinding] = field(factory=list, init=False)  # About the logs.
    own: dict[int, list[AuditFinding]] = field(factory=dict, init=False)  # About files beside a member's log.
    between: list[AuditFinding] = field(factory=list, init=False)  # About tables of several members.
    deadly: set[int] = field(factory=set, init=False)  # Members that no worker survived.
    endless: set[int] = field(factory=set, init=False)  # Members whose log has no readable end.
    compared: Counter[str] = field(factory=Counter, init=False)
    read: Counter[str] = field(factory=Counter, init=False)
    blocks: int = field(default=0, init=False)
    differing: list[Differing] = field(factory=list, init=False)
    known: dict[int, ComparedDigests] = field(factory=dict, init=False)  # By member, with its own digests.

    def __attrs_post_init__(self) -> None:
        self.files = {number: store.files for number, store in enumerate(self.stores) if store.files is not None}
        self.sides = {number: self.stores[number].side for number in self.files}
        if self.options.hosts:
            self.runner.host_of = self._host_of

    def _host_of(self, task: object) -> str | None:
        """The host that has the files of a task which is about one member."""
        if isinstance(task, MemberSplit | MemberParts):
            return self.options.hosts[task.member]
        return self.options.hosts[task.members[0]] if isinstance(task, LogPart) else None

    def run(self) -> AuditReport:
        clock_ms = int(time.time() * 1000)
        if self.options.with_tables:
            self.runner.expect(sum(part.size for files in self.files.values() for part in file_ranges(files)))
        sent = self.runner.context.broadcast(self.files)
        try:
            self._report_unread()
            self._digests(sent)
            self._compare_records(sent)
            if self.options.with_tables:
                self._tables(sent)
        finally:
            sent.unpersist()
        findings = AuditFindings()
        own = {self.stores[number].name: found for number, found in sorted(self.own.items())}
        found_all = settled(self.findings, own, self.between)
        found_all = (evolve(found, why=without_secrets(found.why)) for found in found_all)
        findings.extend(sorted(found_all, key=lambda found: (found.member, found.cls, found.offset or 0)))
        return assembled(
            [self._member(number, store) for number, store in enumerate(self.stores)],
            findings,
            clock_ms=clock_ms,
            is_complete=len(self.files) > 1,
            blocks=self.blocks,
            differing_blocks=different_blocks(each.range for each in self.differing),
        )

    def _report_unread(self) -> None:
        """Report what the inspection of the stores found."""
        for number, store in enumerate(self.stores):
            if store.files is None:
                self._unreadable(number, "it could not be read", store.problem or "")
            for note in store.notes:
                self._unreadable(number, "a file beside the log cannot be used", note)
        if nothing_in_common(list(self.sides.values())):
            for number in list(self.sides)[1:]:
                self._unreadable(number, "it has no byte in common with the others", "nothing can be compared")

    def _unreadable(self, number: int, what: str, why: str, part: Split | None = None) -> None:
        self.findings.append(
            AuditFinding(
                cls=FindingClass.UNREADABLE,
                member=self.stores[number].name,
                offset=part.start if part is not None else None,
                end=part.end if part is not None else None,
                what=what,
                why=why,
            )
        )

    # ---- Digests

    def _digests(self, sent: "Broadcast[dict[int, StoreFiles]]") -> None:
        size = self.options.split_size or split_size(self.sides.values(), self.runner.cores)
        parts = [
            MemberSplit(number, split)
            for number, files in self.files.items()
            for split in splits(files.log, size, files.first, files.end)
        ]
        self.runner.expect(sum(part.split.size for part in parts))
        read = partial(tasks.digest_parts, sent, self.runner.done.add, with_own=self.options.with_tables)

        def compare(rdd: "RDD[MemberSplit]") -> "RDD[SplitCompared]":
            by_split = rdd.mapPartitions(read).map(partial(tasks.keyed, size)).groupByKey(self.runner.cores)
            return by_split.map(partial(tasks.compare_split, self.sides, size))

        try:
            found = self.runner.collect(compare(self.runner.spread(parts)))
        except WorkersDiedError:
            units = [[part] for part in parts]
            _, dead = self.runner.collect_robust(units, lambda rdd: rdd.mapPartitions(read).map(lambda _: None))
            for (part,), why in dead:
                self.deadly.add(part.member)
                self._unreadable(part.member, "cannot be read", why, part.split)
            gone = {part for (part,), _ in dead}
            found = self.runner.collect(compare(self.runner.spread([part for part in parts if part not in gone])))
        for each in sorted(found, key=lambda each: each.start):
            self._take(each)
        for number, side in self.sides.items():
            self.sides[number] = before_unreadable_end(side, self.findings)
            if self.sides[number] is not side:
                self.endless.add(number)

    def _take(self, found: SplitCompared) -> None:
        self.findings += found.unreadable
        self.compared.update(found.compared)
        self.read.update(found.read)
        self.blocks += found.blocks
        for number, own in found.own.items():
            self.known[number] = self.known.get(number, NOTHING_COMPARED).joined(own)
        for part in found.differing:
            last = self.differing[-1] if self.differing else None
            if last is not None and last.members == found.members and last.range.end >= part.start:
                part = ByteRange(last.range.start, max(last.range.end, part.end))
                self.differing.pop()
            self.differing.append(Differing(part, found.members))

    # ---- Records

    def _compare_records(self, sent: "Broadcast[dict[int, StoreFiles]]") -> None:
        if len(self.files) < 2:
            return
        if self.differing:
            self.sides = {number: as_it_is_now(side, self.files[number]) for number, side in self.sides.items()}
        parts = bounded(self.differing)
        self.runner.expect(sum(len(part.members) * (part.range.end - part.range.start) for part in parts))
        compare = partial(tasks.compare_part, sent, self.runner.done.add, self.sides)
        found, dead = self.runner.collect_robust([[part] for part in parts], lambda rdd: rdd.flatMap(compare))
        self.findings += found
        for (part,), why in dead:
            for number in part.members[1:]:
                self._unreadable(number, "differs, and cannot be compared by records", why, Split(*part.range))
        alive = tuple(number for number in self.files if number not in self.deadly | self.endless)
        find_ends = partial(tasks.find_ends, sent, self.sides)
        found, dead_ends = self.runner.collect_robust([[alive]], lambda rdd: rdd.flatMap(find_ends))
        self.findings += found
        for (members,), why in dead_ends:
            self._unreadable(members[-1], "the end of the log cannot be compared", why)

    # ---- Files beside the logs

    def _tables(self, sent: "Broadcast[dict[int, StoreFiles]]") -> None:
        """Check queues and index of each member, and compare configuration and offsets between members."""
        alive = {number: files for number, files in self.files.items() if number not in self.deadly}
        unequal = unequal_ranges([each.range for each in self.differing], self.findings)
        check, join = partial(tasks.check_split, sent, self.runner.done.add), partial(tasks.check_member, sent)

        def job(rdd: "RDD[LogPart]") -> "RDD[tuple[int, VerifyReport | str]]":
            return rdd.flatMap(check).groupByKey(min(len(self.files), self.runner.cores)).map(MemberParts.of).map(join)

        dead: list[tuple[Sequence[LogPart], str]] = []
        alone = alive if self.options.each_alone or self.options.hosts else self.endless
        together = parts_together(alive, self.known, unequal, alone)
        try:
            if self.options.hosts:  # A shuffle would take the second step anywhere.
                checked = self.runner.collect(self.runner.spread(together).flatMap(check))
                found = self.runner.collect(self.runner.spread(MemberParts.grouped(checked)).map(join))
            else:
                found = self.runner.collect(job(self.runner.spread(together)))
        except WorkersDiedError:
            found, dead = self.runner.collect_robust(parts_alone(alive, self.known), job)
        log = list(self.findings)
        for member, report in found:
            if isinstance(report, str):
                self._unreadable(member, "queues and index were not checked", report)
            else:
                own = own_findings(self.stores[member].name, report, log)
                self.own[member] = [found for found in own if not is_known(found, log)]
        for unit, why in dead:
            self._unreadable(unit[0].members[0], "queues and index were not checked", why)
        members = [read_tables(self.stores[number].name, files) for number, files in alive.items()]
        if len(members) > 1:
            truncated = members_with_losses(self.findings, [found for own in self.own.values() for found in own])
            extents = [
                extent_of(self.stores[number].name, files, self.sides[number].last) for number, files in alive.items()
            ]
            self.between = [*compare_tables(members[0], members[1:]), *incomplete(extents, truncated)]

    def _member(self, number: int, store: Store) -> AuditedMember:
        if number not in self.files:
            return store.to_member()
        bad = sum(
            (found.end or 0) - (found.offset or 0)
            for found in self.findings
            if found.member == store.name and found.cls in LOG_CLASSES and found.cls is not FindingClass.TRUNCATED
        )
        compared = self.compared[store.name]
        return evolve(
            store.to_member(),
            last_offset=self.sides[number].last,
            compared_bytes=compared,
            equal_bytes=max(0, compared - bad),
            read_bytes=self.read[store.name],
        )

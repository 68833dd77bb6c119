"""Named places of the product at which a member can be told to die: kill -9 by its own hand, at the n-th pass.

The product knows nothing of them: `planted.py` puts them into a member's process. $FAULTS_POINTS names a file whose first line
arms one, `N NAME`. Who gets there moves the line to a file beside it, *.reached, and dies; the next line is for its next start.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from attrs import define, field, frozen

from scripts.fault_matrix.planted import planted

POINTS_FILE, FAIL_POINTS = "FAULTS_POINTS", "fail-points"
Stage = Literal["traffic", "start", "cut", "change"]
Passes = Callable[..., bool]


@frozen
class Point:
    """Before or after each call of `target`, "module:name" of twinlog's, whose arguments `when` lets pass.

    `who`: the role of the member that gets there; "": whichever. `passes`: it is reached so often within a few seconds.
    """

    name: str
    stage: Stage
    target: str
    side: Literal["before", "after", "half way through"]
    who: str = ""
    passes: int = 1
    when: Passes = lambda *_, **__: True


def _lies_in(part: str) -> Passes:
    """The file, or the directory, that the first argument is or has lies there."""

    def when(first: Any, *_: Any, **__: Any) -> bool:
        path = getattr(first, "path", None) or getattr(first, "directory", first)
        return part in path.parts

    return when


def _syncs(part: str) -> Passes:
    """twinlog.store.services.flush._sync of such files."""
    return lambda dirty, *_: part in dirty[0][0].path.parts


def _around(stage: Stage, what: str, target: str, **more: Any) -> list[Point]:
    return [Point(f"{side} {what}", stage, target, side, **more) for side in ("before", "after")]  # type: ignore[arg-type]


def _write(what: str, part: str, passes: int, target: str) -> list[Point]:
    when = _lies_in(part)
    half = Point(f"half way through a write of {what}", "traffic", target, "half way through", passes=passes, when=when)
    return [half, *_around("traffic", f"a write of {what}", target, passes=passes, when=when)]


LOG, QUEUE = "commitlog", "consumequeue"
POINTS = (
    *_write("the log", LOG, 200, "store.log.mapped_file:MappedFile.append"),
    # Units reach the disk many at a time, each 20 ms; all of them, and those of a queue that is made anew, by write_at().
    *_write("a queue", QUEUE, 100, "store.log.mapped_file:MappedFile.write_at"),
    *_around("traffic", "an fsync of the log", "store.services.flush:_sync", passes=2, when=_syncs(LOG)),
    *_around("traffic", "an fsync of queues", "store.services.flush:_sync", passes=2, when=_syncs(QUEUE)),
    *_around("traffic", "a roll of the log", "store.log.mapped_file_queue:MappedFileQueue.adopt", when=_lies_in(LOG)),
    Point(
        "between a roll of the log and its directory's fsync",
        "traffic",
        "store.services.flush:sync_directory",
        "before",
        when=_lies_in(LOG),
    ),
    *_around(
        "traffic",
        "a roll of a queue",
        "store.log.mapped_file_queue:MappedFileQueue.create",
        when=_lies_in(QUEUE),
    ),
    *_around("traffic", "a write of the index", "store.index.index_file:IndexFile.write", passes=3),
    *_around("traffic", "an fsync of the index", "store.index.index_file:IndexFile.sync"),
    *_around("traffic", "the checkpoint is saved", "store.log.checkpoint:Checkpoint.save"),
    Point("between the checkpoint's write and its fsync", "traffic", "store.log.checkpoint:sync_data", "before"),
    *_around("traffic", "a recovery point is saved", "store.recovery.side_files:SideFiles.save_point"),
    Point("between a side file's fsync and its rename", "traffic", "store.util.sync:sync_data", "after"),
    Point(
        "between a side file's rename and its directory's fsync", "traffic", "store.util.sync:sync_directory", "before"
    ),
    *_around(
        "traffic",
        "an ack to producers",
        "cluster.broker.send.acks:ProducerAcks.answer",
        who="master",
        passes=100,
    ),
    *_around("traffic", "an ack of a slave", "ha.slave.replica:Replica._report", who="slave", passes=100),
    # A start after a crash
    Point("after the log's files are opened", "start", "store.log.mapped_file_queue:MappedFileQueue.load", "after"),
    Point("after queues are opened", "start", "store.recovery.queues:QueueRecovery.open", "after"),
    *_around("start", "the walk through the log", "store.recovery.recovery:Recovery._walk"),
    Point("after what lies behind the end is kept", "start", "store.recovery.recovery:keep_behind_end", "after"),
    *_around("start", "the cut at the log's end", "store.recovery.recovery:Recovery._cut"),
    Point("after queues are level with the log", "start", "store.recovery.queues:QueueRecovery.finish", "after"),
    Point("after recovery, before the abort file", "start", "store.recovery.recovery:Recovery.run", "after"),
    Point("after the digests are opened", "start", "store.integrity.digest_service:DigestService.open", "after"),
    Point("after the index is loaded", "start", "store.index.service:IndexService.load", "after"),
    Point("after the store is loaded", "start", "store.message_store:MessageStore._load", "after"),
    *_around("start", "the first write of its role", "cluster.broker.roles.durable_state:save_role"),
    Point("before the first fsync of the log", "start", "store.services.flush:_sync", "before", when=_syncs(LOG)),
    # A slave's log is cut
    *_around("cut", "the copy of what is cut", "store.truncation.truncation:TruncationService._keep"),
    Point("after the intent is written", "cut", "store.truncation.truncation:TruncationService._decide", "after"),
    Point("after the copy has its name", "cut", "store.truncation.divergent:DivergentDirectory.settle", "after"),
    Point("after the cut in memory", "cut", "store.truncation.truncation:TruncationService._cut_in_memory", "after"),
    *_around("cut", "the cut on the disk", "store.truncation.truncation:cut_on_disk"),
    Point("after the queues' cut, before the log's", "cut", "store.truncation.truncation:sync_directory", "before"),
    Point("before the checkpoint is lowered", "cut", "store.truncation.truncation:lower_checkpoint", "before"),
    *_around("cut", "the index is cut", "store.index.service:IndexService.note_cut"),
    *_around("cut", "the intent is removed", "store.truncation.truncation:remove_intent"),
    *_around("cut", "a master's history is adopted", "cluster.broker.roles.member:Member.adopt"),
    # A role change
    *_around("change", "a role is written", "cluster.broker.roles.durable_state:save_role", passes=2),
    *_around("change", "an epoch is written", "cluster.broker.roles.durable_state:save_epochs"),
    Point("after a master holds", "change", "cluster.broker.roles.write_pause:WritePause.begin", "after", who="master"),
    *_around("change", "a promise", "cluster.broker.roles.voter:Voter.vote"),
    Point("after its slave's stream has ended", "change", "ha.service:HAService.leave_master", "after", who="slave"),
    *_around("change", "it takes its epoch", "cluster.broker.roles.change:RoleChange._take", who="candidate"),
    *_around("change", "it serves", "cluster.broker.roles.change:RoleChange._serve", who="candidate"),
    Point("before it reports", "change", "cluster.broker.roles.change:RoleChange._report", "before", who="candidate"),
    Point(
        "before the record is in force",
        "change",
        "cluster.broker.roles.lease:loss_free_below",
        "before",
        who="candidate",
    ),
)


def of_stage(*stages: Stage) -> list[Point]:
    """In the order of the list."""
    return [point for point in POINTS if point.stage in stages]


@define
class Armed:
    """What a member's own process knows of it. `die` is for tests."""

    path: Path
    die: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    _lock: threading.Lock = field(factory=threading.Lock)
    _stamp: tuple[int, int] = (0, 0)
    _name: str = ""
    _left: int = 0

    def reached(self, point: Point) -> bool:
        """Whether this pass is the one to die at."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        with self._lock:
            if self._stamp != (stamp := (found.st_mtime_ns, found.st_size)):
                self._stamp = stamp
                left, _, self._name = self.path.read_text().partition("\n")[0].partition(" ")
                self._left = int(left or 0)
            if self._name != f"{point.stage}: {point.name}":
                return False
            self._left -= 1
            return self._left == 0

    def end(self) -> None:
        """Note it, and die."""
        first, _, rest = self.path.read_text().partition("\n")
        with self.path.with_suffix(".reached").open("a") as file:
            file.write(f"{first.partition(' ')[2]}\n")
        self.path.write_text(rest)
        self.die()

    def around(self, point: Point, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the point in it."""

        def before(*arguments: Any, **options: Any) -> bool:
            if not point.when(*arguments, **options) or not self.reached(point):
                return False
            if point.side == "half way through":
                file, *position, data = arguments  # Of write_at(), or of append().
                file.write_at(position[0] if position else file.wrote, data[: len(data) // 2])
            if point.side != "after":
                self.end()
            return point.side == "after"

        @wraps(function)
        def plain(*arguments: Any, **options: Any) -> Any:
            ends = before(*arguments, **options)
            result = function(*arguments, **options)
            if ends:
                self.end()
            return result

        @wraps(function)
        async def waiting(*arguments: Any, **options: Any) -> Any:
            ends = before(*arguments, **options)
            result = await function(*arguments, **options)
            if ends:
                self.end()
            return result

        return waiting if iscoroutinefunction(function) else plain


@planted(FAIL_POINTS)
def fail_points() -> Iterator[None]:
    """All of them, not armed."""
    with ExitStack() as stack:
        put_in(Armed(Path(os.environ.get(POINTS_FILE, "/nonexistent"))), stack)
        yield


def put_in(armed: Armed, stack: ExitStack) -> None:
    """Into the product. Raises AttributeError where a target is gone."""
    for point in POINTS:
        module, _, name = point.target.partition(":")
        owner_name, _, attribute = name.rpartition(".")
        owner = (
            attrgetter(owner_name)(import_module(f"twinlog.{module}"))
            if owner_name
            else import_module(f"twinlog.{module}")
        )
        stack.enter_context(patch.object(owner, attribute, armed.around(point, getattr(owner, attribute))))

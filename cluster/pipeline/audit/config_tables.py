"""Compares topics, groups and consumer offsets of members. A slave copies them from its master every 10 seconds.

So a slave that is a little behind is no fault: its tables are older than the master's, and the master's last change is recent;
its offsets are lower by no more than consumers read in the meantime. Offsets higher than the master's are a fault.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from attrs import frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.places import UnreadableError, read_all
from twinlog.store.offline.verify.config_check import parse_config
from twinlog.store.util.text import counted

CHANGED_LATELY_MS = 60_000  # Six times the interval of a slave.
OFFSETS_BEHIND_MAX = 1000  # Messages of one queue and group.
_TABLES = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable"}
_OFFSETS = "consumerOffset.json"
_DELAYS = "delayOffset.json"
_DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
_LAST_STORED = Struct(">q")  # The checkpoint begins with it.


class Version(NamedTuple):
    """Version of a table: number of changes, and time of the last one, ms. Ordered as RocketMQ compares versions."""

    counter: int
    timestamp: int


class Consumed(NamedTuple):
    """Owner of an offset: a group in a queue of a topic; group None for the delivery of delayed messages."""

    topic: str
    group: str | None
    queue_id: int


@frozen
class MemberTables:
    """Content of a member's files; None for a file that is missing or not JSON. `newest_ms`: the last time it knows of."""

    name: str
    tables: Mapping[str, tuple[Mapping[str, Any], Version] | None]
    offsets: Mapping[str, Mapping[Consumed, int] | None]
    newest_ms: int
    unreadable: Mapping[str, str]

    @property
    def is_without_files(self) -> bool:
        """True if there is no configuration, as in an archive of the log alone."""
        return not self.unreadable and not any((*self.tables.values(), *self.offsets.values()))


def read_tables(name: str, files: StoreFiles) -> MemberTables:
    """Read the files of one member."""
    unreadable: dict[str, str] = {}

    def load(file: str) -> Any:
        try:
            raw = read_all(files.uri.child(f"config/{file}"))
            return parse_config(raw) if raw is not None else None
        except (UnreadableError, ValueError) as error:
            unreadable[file] = str(error)
            return None

    tables = {file: _table(load(file), key) for file, key in _TABLES.items()}
    offsets = {_OFFSETS: _consumed(load(_OFFSETS)), _DELAYS: _delivered(load(_DELAYS))}
    times = [found[1].timestamp for found in tables.values() if found is not None]
    return MemberTables(name, tables, offsets, max([_last_stored(files), *times]), unreadable)


def _last_stored(files: StoreFiles) -> int:
    try:
        raw = read_all(files.uri.child("checkpoint")) or b""
    except UnreadableError:
        return 0
    return max(0, int(_LAST_STORED.unpack_from(raw)[0])) if len(raw) >= _LAST_STORED.size else 0


def _table(raw: Any, key: str) -> tuple[Mapping[str, Any], Version] | None:
    table = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(table, dict):
        return None
    version = raw.get("dataVersion")
    version = version if isinstance(version, dict) else {}
    numbers = [version.get(name) for name in ("counter", "timestamp")]
    return table, Version(*(number if isinstance(number, int) else 0 for number in numbers))


def _queues(raw: Any) -> Iterator[tuple[str, int, int]]:
    table = raw.get("offsetTable") if isinstance(raw, dict) else None
    for name, queues in table.items() if isinstance(table, dict) else ():
        for queue_id, offset in queues.items() if isinstance(queues, dict) else (("", queues),):
            if isinstance(offset, int) and (queue_id.isdecimal() or not queue_id):
                yield name, int(queue_id or 0), offset


def _consumed(raw: Any) -> Mapping[Consumed, int] | None:
    if not isinstance(raw, dict):
        return None
    found = {}
    for name, queue_id, offset in _queues(raw):
        topic, _, group = name.partition("@")
        found[Consumed(topic, group, queue_id)] = offset
    return found


def _delivered(raw: Any) -> Mapping[Consumed, int] | None:
    if not isinstance(raw, dict):
        return None
    return {
        Consumed(_DELAY_TOPIC, None, int(level) - 1): offset for level, _, offset in _queues(raw) if level.isdecimal()
    }


# Comparison


def compare_tables(
    master: MemberTables, slaves: Sequence[MemberTables], *, behind_max: int = OFFSETS_BEHIND_MAX
) -> list[AuditFinding]:
    """Differences between members. Unreadable files are reported by side_tables.py."""
    newest = max(member.newest_ms for member in (master, *slaves))
    found: list[AuditFinding] = []
    for slave in slaves if not master.is_without_files else ():
        if slave.is_without_files:
            continue
        for file in _TABLES:
            found += _compare_table(master, slave, file, newest)
        for file in (_OFFSETS, _DELAYS):
            found += _compare_offsets(master, slave, file, behind_max)
    return found


def _compare_table(master: MemberTables, slave: MemberTables, file: str, newest: int) -> Iterator[AuditFinding]:
    ours, theirs = master.tables[file], slave.tables[file]
    if ours is None or theirs is None:
        there = ours or theirs
        # Every broker starts with an unchanged table, and only slaves write it to a file.
        if there and there[1].counter > 0 and file not in {**master.unreadable, **slave.unreadable}:
            having, lacking = (slave, master) if ours is None else (master, slave)
            yield AuditFinding(
                cls=FindingClass.CONFIG,
                member=lacking.name,
                what=f"there is no {file}",
                why=f"{having.name} has one",
                good=having.name,
                file=f"config/{file}",
            )
        return
    (table, version), (other, other_version) = ours, theirs
    names = sorted(name for name in {**table, **other} if table.get(name) != other.get(name))
    if not names:
        return
    if other_version < version and version.timestamp >= newest - CHANGED_LATELY_MS:
        yield AuditFinding(
            cls=FindingClass.LAG,
            member=slave.name,
            what=f"has an older {file}",
            why=f"{master.name} changed it at {version.timestamp} ms, just before the end",
            good=master.name,
            since_ms=version.timestamp,
            file=f"config/{file}",
            count=len(names),
        )
        return
    for name in names:
        yield AuditFinding(
            cls=FindingClass.CONFIG,
            member=slave.name,
            what=f"{name}: {_difference(table.get(name), other.get(name))}",
            why=f"{file} of {master.name} says otherwise",
            good=master.name,
            since_ms=version.timestamp or None,
            topic=name if file == "topics.json" else None,
            file=f"config/{file}",
        )


def _difference(master: Any, slave: Any) -> str:
    """Fields in which two entries differ."""
    if slave is None:
        return "it is missing"
    if master is None:
        return "it is too many"
    if not isinstance(master, dict) or not isinstance(slave, dict):
        return f"{slave} here, {master} there"
    keys = sorted(key for key in {**master, **slave} if master.get(key) != slave.get(key))
    return ", ".join(f"{key} {slave.get(key)} here, {master.get(key)} there" for key in keys)


def _compare_offsets(master: MemberTables, slave: MemberTables, file: str, behind_max: int) -> Iterator[AuditFinding]:
    if file in {**master.unreadable, **slave.unreadable}:
        return
    ours, theirs = master.offsets[file] or {}, slave.offsets[file] or {}
    is_older = master.newest_ms < slave.newest_ms  # For example an older copy of the master's directory.
    behind: Counter[str] = Counter()
    for key in sorted({**ours, **theirs}, key=repr):
        mine, other = ours.get(key, 0), theirs.get(key, 0)
        if abs(mine - other) > behind_max or (other > mine and not is_older):
            yield _offset_finding(master, slave, file, key, mine, other)
        elif mine != other:
            behind[master.name if mine < other else slave.name] += 1
    for name, count in behind.items():
        ahead = slave.name if name == master.name else master.name
        yield AuditFinding(
            cls=FindingClass.LAG,
            member=name,
            what=f"has older offsets in {file}",
            why=f"those of {ahead} are higher, by {counted(behind_max, 'message')} at most",
            good=ahead,
            file=f"config/{file}",
            count=count,
        )


def _offset_finding(
    master: MemberTables, slave: MemberTables, file: str, key: Consumed, mine: int, other: int
) -> AuditFinding:
    is_ahead = other > mine
    what = f"group {key.group}" if key.group is not None else "delivery of delayed messages"
    what += f" is {counted(abs(other - mine), 'message')} {'further' if is_ahead else 'behind'}"
    return AuditFinding(
        cls=FindingClass.OFFSETS,
        member=slave.name,
        what=what,
        why=f"at {other} here, at {mine} on {master.name}" + (": a slave is never ahead" if is_ahead else ""),
        good=None if is_ahead else master.name,
        topic=key.topic,
        queue_id=key.queue_id,
        queue_offset=other,
        file=f"config/{file}",
    )

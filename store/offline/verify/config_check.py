"""Checks the small files of a store: JSON files of the configuration, checkpoint, twinlog's side files."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from twinlog.store.errors import SideFileError
from twinlog.store.log.checkpoint import FILE_SIZE as CHECKPOINT_SIZE
from twinlog.store.offline.directory import StoreDirectory, Writer
from twinlog.store.offline.finding import Finding, FindingKind, Severity
from twinlog.store.recovery.point import decode_point

_NUMBER_AS_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(\d+)(\s*:)')  # A string, or a number used as a key.
_DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"


def parse_config(raw: bytes) -> Any:
    """JSON as RocketMQ writes it: numbers that are keys have no quotes. Raises ValueError."""
    return orjson.loads(_NUMBER_AS_KEY.sub(lambda found: found[1] or b'%s"%s"%s' % found.group(2, 3, 4), raw))


def known_topics(directory: StoreDirectory) -> frozenset[str] | None:
    """The topics of topics.json; None when there is no such file, or an unreadable one."""
    table = _load(directory.root / "config" / "topics.json")
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) else None


def check_config(directory: StoreDirectory, next_offsets: Mapping[tuple[str, int], int]) -> Iterator[Finding]:
    """Findings about the JSON files; `next_offsets` has the next queue offset of each queue."""
    for path in directory.config_files:
        if path.suffix == ".json" or path.name.endswith(".json.bak"):
            raw = path.read_bytes()
            try:
                parse_config(raw)
            except ValueError as error:
                yield _unreadable(directory, path, str(error) if raw else "it is empty")
    for name, key, value in _offsets(directory):
        end = next_offsets.get(key, 0)
        if value > end and not directory.is_running:
            yield Finding(
                kind=FindingKind.CONFIG_FILE,
                severity=Severity.WARNING,
                file=f"config/{name}",
                topic=key[0],
                queue_id=key[1],
                message="an offset behind the end of its queue",
                expected=f"<= {end}",
                actual=value,
            )


def _unreadable(directory: StoreDirectory, path: Path, reason: str) -> Finding:
    is_backup = path.suffix == ".bak"
    has_other = _load(path.with_suffix("") if is_backup else path.with_name(f"{path.name}.bak")) is not None
    return Finding(
        kind=FindingKind.CONFIG_FILE,
        severity=Severity.WARNING if is_backup or has_other else Severity.ERROR,
        file=directory.relative(path),
        message=f"not readable as JSON: {reason}"
        + ("; a broker takes the .bak instead" if has_other and not is_backup else ""),
    )


def _offsets(directory: StoreDirectory) -> Iterator[tuple[str, tuple[str, int], int]]:
    """File, queue and value of each offset that a configuration file holds."""
    table = _table(directory, "consumerOffset.json")
    for name, queues in table.items():
        topic = name.partition("@")[0]
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if queue_id.isdecimal() and isinstance(offset, int):
                yield "consumerOffset.json", (topic, int(queue_id)), offset
    for level, offset in _table(directory, "delayOffset.json").items():
        if level.isdecimal() and isinstance(offset, int):
            yield "delayOffset.json", (_DELAY_TOPIC, int(level) - 1), offset


def _table(directory: StoreDirectory, name: str) -> dict[str, Any]:
    found = _load(directory.root / "config" / name)
    table = found.get("offsetTable") if isinstance(found, dict) else None
    return table if isinstance(table, dict) else {}


def _load(path: Path) -> Any:
    try:
        return parse_config(path.read_bytes())
    except (OSError, ValueError):
        return None


def check_checkpoint(directory: StoreDirectory, last_timestamp: int) -> Iterator[Finding]:
    """Findings about the checkpoint. `last_timestamp`: the store time of the log's last record, ms; 0 for none."""
    checkpoint, path = directory.checkpoint, directory.root / "checkpoint"
    if checkpoint is None:
        if last_timestamp and not directory.is_running:  # Else it is about to be made.
            yield _checkpoint_finding("it is missing; after a crash a broker would walk the whole log")
        return
    if path.stat().st_size < CHECKPOINT_SIZE:
        yield _checkpoint_finding("it is too short", CHECKPOINT_SIZE, path.stat().st_size)
    times = (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)
    names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
    for number, (name, timestamp) in enumerate(zip(names, times, strict=True)):
        if timestamp < 0 or (last_timestamp and timestamp > last_timestamp and not directory.is_running):
            message = f"{name} is younger than the last message of the log"
            yield _checkpoint_finding(message, f"<= {last_timestamp}", timestamp, number * 8)


def _checkpoint_finding(
    message: str, expected: int | str | None = None, actual: int | None = None, position: int | None = None
) -> Finding:
    return Finding(
        kind=FindingKind.CHECKPOINT,
        severity=Severity.WARNING,
        file="checkpoint",
        position=position,
        message=message,
        expected=expected,
        actual=actual,
    )


def check_recovery_point(
    directory: StoreDirectory, log_end: int, next_offsets: Mapping[tuple[str, int], int]
) -> Iterator[Finding]:
    """Compare our recovery point with log and queues, where no other broker ran since."""
    path = directory.root / "twinlog" / "recovery-point"
    try:
        point = decode_point(path.read_bytes())
    except FileNotFoundError:
        return
    except SideFileError as error:
        yield Finding(
            kind=FindingKind.SIDE_FILE,
            severity=Severity.WARNING,
            file=directory.relative(path),
            message=f"not usable: {error}; a start reads more of the log without it",
        )
        return
    if directory.writer is not Writer.TWINLOG or directory.is_running:
        return
    if log_end < point.offset:
        yield Finding(
            kind=FindingKind.LOG_TAIL,
            file=directory.relative(path),
            phy_offset=log_end,
            message="the log lost its tail: more of it was on the disk",
            expected=f">= {point.offset}",
            actual=log_end,
        )
    for queue in point.queues:
        end = next_offsets.get(queue.key, 0)
        if end < queue.max_offset:
            yield Finding(
                kind=FindingKind.UNIT_MISSING,
                file=directory.relative(path),
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=end,
                message="the queue lost its tail: more of it was on the disk",
                expected=f">= {queue.max_offset}",
                actual=end,
            )

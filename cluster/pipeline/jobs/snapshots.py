"""Copies of a broker's config/consumerOffset.json with their time in their names: 20261122T130500Z, or ms since 1970."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from attrs import frozen

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import StoreUri, list_files, read_all
from twinlog.store.offline.verify.config_check import parse_config

_TIME = re.compile(r"(\d{8}T\d{6})Z|(\d{13})")


@frozen(kw_only=True)
class OffsetSnapshot:
    """Consumer offsets at a time, ms: by topic, group and queue id."""

    at_ms: int
    offsets: Mapping[tuple[str, str, int], int]


def read_snapshots(place: str) -> list[OffsetSnapshot]:
    """Read the copies in a directory, ordered by time. Raises ReadRefusedError for any other file, UnreadableError."""
    found = []
    directory = StoreUri(place)
    for info in list_files(directory):
        if info.name.endswith(".json"):
            raw = read_all(directory.child(info.name)) or b""
            found.append(OffsetSnapshot(at_ms=_time_of(info.name), offsets=_offsets(raw, info.name)))
    if not found:
        raise ReadRefusedError(f"{place}: no snapshots of consumer offsets: no file is named *.json")
    return sorted(found, key=lambda snapshot: snapshot.at_ms)


def _time_of(name: str) -> int:
    time = _TIME.search(name)
    if time is None:
        raise ReadRefusedError(
            f"{name}: its name has no time. Name it in UTC, such as consumerOffset-20261122T130500Z.json"
        )
    if time[2]:
        return int(time[2])
    return int(datetime.strptime(time[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp() * 1000)


def _offsets(raw: bytes, name: str) -> dict[tuple[str, str, int], int]:
    try:
        table = parse_config(raw)["offsetTable"]
        return {
            (topic, group, int(queue_id)): int(offset)
            for key, queues in table.items()
            for topic, _, group in [key.partition("@")]
            for queue_id, offset in queues.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadRefusedError(f"{name}: this is no consumerOffset.json: {error!r}") from error

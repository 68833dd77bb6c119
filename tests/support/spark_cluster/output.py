"""What a stream wrote as Parquet: the files that count, as Spark's own log of them tells, and how far its checkpoint is."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq


class Place(NamedTuple):
    """Where a message lies."""

    broker: str
    queue_id: int
    queue_offset: int


def batches_done(checkpoint: Path) -> int:
    """Batches that are complete."""
    commits = checkpoint / "commits"
    numbers = [int(file.name) for file in commits.iterdir() if file.name.isdecimal()] if commits.is_dir() else []
    return max(numbers) + 1 if numbers else 0


def files_that_count(out: Path) -> list[Path]:
    """Others in the directory are of batches, or of copies of tasks, that did not complete."""
    found = set()
    for log in (out / "_spark_metadata").iterdir():
        if log.name[0] != ".":
            version, *entries = log.read_text().splitlines()
            assert version == "v1"
            found |= {Path(json.loads(entry)["path"].removeprefix("file://")) for entry in entries}
    return sorted(found)


def rows(out: Path) -> list[dict[str, Any]]:
    """All rows, file by file."""
    return [row for file in files_that_count(out) for row in pq.ParquetFile(file).read().to_pylist()]


def check_same(found: list[dict[str, Any]], expected: Mapping[Place, bytes]) -> None:
    """Each message that the topic has is there once, with its body, and nothing else."""
    times = Counter(place_of(row) for row in found)
    twice = {place: count for place, count in times.items() if count > 1}
    assert not twice, f"{len(twice)} rows more than once: {sorted(twice.items())[:5]}"
    missing, invented = expected.keys() - times.keys(), times.keys() - expected.keys()
    assert not missing, f"{len(missing)} of {len(expected)} missing: {sorted(missing)[:5]}"
    assert not invented, f"{len(invented)} that the topic does not have: {sorted(invented)[:5]}"
    other = [place_of(row) for row in found if row["value"] != expected[place_of(row)]]
    assert not other, f"{len(other)} with another body: {sorted(other)[:5]}"


def place_of(row: Mapping[str, Any]) -> Place:
    """From the columns of the source."""
    return Place(row["broker"], row["queueId"], row["queueOffset"])

"""Seeded damage to a store directory, and the bits that other data in the store covers."""

import random
from pathlib import Path

from attrs import frozen

from tests.helpers import docs_extension
from twinlog.store.index.layout import HEADER, ITEM, SLOT
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.index_view import open_index
from twinlog.store.offline.queue_view import QueueKey
from twinlog.store.offline.verify.queue_check import queue_ends
from twinlog.store.offline.walk import Window, walk_log

formats = docs_extension("format_fields")


@frozen
class Mutation:
    """A file, and what it holds afterwards."""

    path: Path
    what: str
    before: bytes
    after: bytes

    def apply(self) -> None:
        self.path.write_bytes(self.after)

    def undo(self) -> None:
        self.path.write_bytes(self.before)

    def touches(self, covered: bytes) -> bool:
        """True when a covered bit changed; the length of a file is always covered."""
        if len(self.after) != len(self.before):
            return True
        changed = int.from_bytes(self.before) ^ int.from_bytes(self.after)
        return bool(changed & int.from_bytes(covered))


def covered_files(root: Path, *, has_digest: bool = False) -> dict[Path, bytes]:
    """For each file of log, queues and index the bits that are covered, by the table of the reference."""
    with StoreDirectory.open(root) as directory:
        return {
            **_covered_log(directory, has_digest=has_digest),
            **_covered_queues(directory),
            **_covered_index(directory),
        }


def _covered_log(directory: StoreDirectory, *, has_digest: bool) -> dict[Path, bytes]:
    log = directory.log
    masks = {file.start: bytearray(log.file_size) for file in log.files}
    last_start = max(masks)
    indexed = open_index(directory)
    first_indexed, end_indexed = indexed[0].first_phy_offset, indexed[-1].header.end_phy_offset
    for window in walk_log(log, delays_ms=directory.options.delays_ms):
        assert isinstance(window, Window), "the store was damaged before"
        for entry in window.entries:
            record = log.read(entry.phy_offset, entry.size)
            bits = formats.covered_bits(record, is_indexed=first_indexed <= entry.phy_offset <= end_indexed)
            start, at = entry.phy_offset - entry.phy_offset % log.file_size, entry.phy_offset % log.file_size
            masks[start][at : at + entry.size] = b"\xff" * entry.size if has_digest else bits
        blank_at, file_start = window.end % log.file_size, window.start - window.start % log.file_size
        if blank_at == 0 and file_start != last_start:
            records_end = window.entries[-1].phy_offset + window.entries[-1].size - file_start
            masks[file_start][records_end : records_end + 8] = _mask(
                [field for field in formats.BLANK if field.name != "rest"]
            )
            if has_digest:
                masks[file_start][records_end:] = b"\xff" * (log.file_size - records_end)
    return {file.path: bytes(masks[file.start]) for file in log.files}


def _covered_queues(directory: StoreDirectory) -> dict[Path, bytes]:
    ends: dict[QueueKey, int] = queue_ends(directory)
    unit = _mask(formats.FORMATS["unit"])
    found = {}
    for key, series in directory.queues.items():
        for file in series.files:
            used = min(series.file_size, ends[key] * len(unit) - file.start)
            found[file.path] = (unit * (used // len(unit))).ljust(series.file_size, b"\0")
    return found


def _covered_index(directory: StoreDirectory) -> dict[Path, bytes]:
    found = {}
    first = b"".join(b"\0" * 4 if field.name == "timeDiff" else _mask([field]) for field in formats.INDEX_ITEM)
    for view in open_index(directory):
        header, slot, item = (_mask(formats.FORMATS[name]) for name in ("index-header", "index-slot", "index-item"))
        assert (len(header), len(slot), len(item)) == (HEADER.size, SLOT.size, ITEM.size)
        unused = b"\0" * ITEM.size
        mask = header + slot * view.layout.slots + unused + first + item * (view.end - 2)
        found[view.file.path] = mask.ljust(view.layout.file_size, b"\0")
    return found


def _mask(fields) -> bytes:
    """The covered bits of fields of fixed size, one after the other."""
    return b"".join(
        (field.bits & ((1 << 8 * field.size) - 1) if field.cover is not formats.Cover.NOTHING else 0).to_bytes(
            field.size
        )
        for field in fields
    )


def mutations(root: Path, seed: int, count: int, *, kinds=("commitlog", "consumequeue", "index")) -> list[Mutation]:
    """`count` different kinds of damage to the used parts of files of the log, the queues and the index."""
    seeded = random.Random(seed)
    files = {kind: sorted(path for path in (root / kind).rglob("*") if path.is_file()) for kind in kinds}
    contents = {path: path.read_bytes() for paths in files.values() for path in paths}
    found: list[Mutation] = []
    while len(found) < count:
        path = seeded.choice(files[seeded.choice(kinds)])
        before = contents[path]
        what, after = _damage(seeded, before)
        if after != before:
            found.append(Mutation(path, what, before, after))
    return found


def _damage(seeded: random.Random, before: bytes) -> tuple[str, bytes]:
    used = len(before.rstrip(b"\0")) + 8
    at = seeded.randrange(min(used, len(before)))
    kind = seeded.choice(("flip", "flip", "flip", "zero", "zero", "cut"))
    if kind == "cut":
        return f"cut to {at}", before[:at]
    after = bytearray(before)
    if kind == "zero":
        size = seeded.choice((1, 4, 20, 100, 512, 4096))
        end = min(len(before), at + size)
        after[at:end] = bytes(end - at)
        return f"zero {at} to {end}", bytes(after)
    flips = [
        (min(len(before) - 1, at + seeded.randrange(16)), 1 << seeded.randrange(8))
        for _ in range(seeded.choice((1, 1, 3)))
    ]
    for position, bit in flips:
        after[position] ^= bit
    return f"flip {flips}", bytes(after)

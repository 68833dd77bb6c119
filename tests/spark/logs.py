"""Access to logs of stores, and damage to those that no process has open."""

from pathlib import Path

from twinlog.store.record.scan import scan_records


def log_bytes(root: Path) -> bytes:
    """All files of a store's log, which begins at offset 0, concatenated."""
    return b"".join(file.read_bytes() for file in log_files(root))


def log_files(root: Path) -> list[Path]:
    """Files of the log, in order."""
    return sorted((root / "commitlog").iterdir())


def record_offsets(root: Path) -> list[int]:
    """Offsets of its records."""
    file_size = log_files(root)[0].stat().st_size
    return [entry.phy_offset for entry in scan_records(log_bytes(root), 0, file_size, check_crc=True).entries]


def parting(left: Path, right: Path) -> int:
    """Offset of the record in which two logs differ first."""
    pairs = enumerate(zip(log_bytes(left), log_bytes(right), strict=False))
    differing = next(at for at, (one, other) in pairs if one != other)
    return max(at for at in record_offsets(left) if at <= differing)


def flip(root: Path, number: int, *, byte: int = 90) -> int:
    """Change a bit in this byte of a record's body; returns the offset of the record."""
    at = record_offsets(root)[number]
    file = max(each for each in log_files(root) if int(each.name) <= at)
    with file.open("r+b") as log:
        log.seek(at + byte - int(file.name))
        (value,) = log.read(1)
        log.seek(-1, 1)
        log.write(bytes([value ^ 1]))
    return at

"""kill -9 and power cuts of a slave with bytes that it has not verified yet: its log is a beginning of its master's afterwards.

Each seed damages the bytes behind the log's end in its own way: pages that never got to the disk, flipped bits, garbage.
"""

import os
import random
from pathlib import Path

import pytest

from tests.helpers import log_bytes, open_store, put, replicate
from twinlog.store.config import BrokerRole
from twinlog.store.record.scan import DispatchEntry, scan_records

FILE_SIZE = 64 * 1024
PAGE = 4096
SEEDS = range(12)
CRASHES = ("kill", "lost pages", "flipped bit", "garbage")


def damage(path: Path, rng: random.Random, kind: str, begin: int, end: int) -> None:
    """Bytes `begin` to `end` of the file were written, and not flushed."""
    with path.open("r+b") as file:
        at = rng.randrange(begin, end)
        if kind == "lost pages":
            for page in range(begin // PAGE + 1, end // PAGE):
                if rng.random() < 0.3:
                    file.seek(page * PAGE)
                    file.write(bytes(PAGE))
        elif kind == "garbage":
            at -= at % PAGE
            file.seek(max(at, begin))
            file.write(rng.randbytes(min(PAGE, end - max(at, begin))))
        elif kind == "flipped bit":
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


@pytest.mark.parametrize("kind", CRASHES)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_comes_back_is_a_beginning_of_the_masters_log(tmp_path: Path, seed: int, kind: str) -> None:
    rng = random.Random(f"{seed} {kind}")
    master = open_store(tmp_path / "master", file_size=FILE_SIZE)
    while master.max_offset < 3 * FILE_SIZE + 1000:
        put(master, rng.randbytes(rng.choice((2000, 3000, 5000))))
    data = log_bytes(master)
    slave = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    entries = scan_records(data[:FILE_SIZE], 0, FILE_SIZE, check_crc=True).entries
    verified = entries[rng.randrange(1, len(entries))].phy_offset
    replicate(slave, data[:verified])
    tail = slave.begin_tail()
    end, at = rng.randrange(verified + 2 * PAGE, len(data)), verified
    while at < end:
        piece = memoryview(data)[at : min(end, at - at % FILE_SIZE + FILE_SIZE, at + rng.randrange(1, 9000))]
        tail.write(piece)
        at += len(piece)
    assert slave.max_offset == verified
    taken = _crash(tmp_path / "slave", rng, kind, verified, min(end, FILE_SIZE))

    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    assert verified <= again.max_offset <= min(end, FILE_SIZE)
    found = log_bytes(again)
    if kind == "flipped bit" and found != data[: len(found)]:
        assert _differs_where_no_crc_covers(found, data, entries)
    else:
        assert found == data[: len(found)]
    last = again.commit_log.files.files[-1]
    assert last.is_clear_from(last.wrote), "nothing is left that could come back"
    assert taken == [f"{0:020}"], "files that hold nothing verified have no name in the log's directory"
    assert not list((tmp_path / "slave" / "twinlog").glob("ahead/*"))
    again.dispatch_pending()
    assert again.dispatched_offset == again.max_offset
    if kind == "kill":
        assert again.max_offset > min(end, FILE_SIZE) - 6000, "what is sound is the master's, and kept"


def _crash(root: Path, rng: random.Random, kind: str, verified: int, end: int) -> list[str]:
    """Leave the directory as a process leaves it that is gone; the names of the log's files."""
    log = root / "commitlog"
    damage(log / f"{0:020}", rng, kind, verified, end)
    os.unlink(root / "lock")  # Another file is locked then: the one who died holds his own.
    return sorted(path.name for path in log.iterdir())


def _differs_where_no_crc_covers(found: bytes, data: bytes, entries: list[DispatchEntry]) -> bool:
    """A record's CRC is that of its body only: of one bit elsewhere a scrub against the master's digests tells."""
    at = next(position for position in range(len(found)) if found[position] != data[position])
    record = max((entry for entry in entries if entry.phy_offset <= at), key=lambda entry: entry.phy_offset)
    body_size = int.from_bytes(data[record.phy_offset + 84 : record.phy_offset + 88])
    return not record.phy_offset + 88 <= at < record.phy_offset + 88 + body_size

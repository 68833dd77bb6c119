"""The walk along a log that may be damaged."""

import os
from itertools import pairwise

import pytest

from tests.store import golden
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.walk import Gap, Window, goes_on_behind, walk, walk_log
from twinlog.store.record.resync import head_of


def entries_of(pieces):
    return [entry for piece in pieces if isinstance(piece, Window) for entry in piece.entries]


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    root = golden.unpack("4.9.7", "master", tmp_path_factory.mktemp("walk"))
    with StoreDirectory.open(root) as directory:
        yield directory


@pytest.mark.parametrize("window", [100, 700, 5000, 60_000])
def test_windows_may_be_cut_anywhere(captured, window):
    """Records and blanks that are larger than a window, and heads that lie across its end, are found all the same."""
    whole = list(walk(captured.log, 0, captured.log.end))
    pieces = list(walk(captured.log, 0, captured.log.end, window=window))
    assert entries_of(pieces) == entries_of(whole)
    assert len(entries_of(whole)) == 363
    assert [isinstance(piece, Gap) for piece in whole] == [False, False, False, True]
    assert isinstance(pieces[-1], Gap)
    assert not any(isinstance(piece, Gap) for piece in pieces[:-1])
    for pieces_of_one in (whole, pieces):
        assert pieces_of_one[0].start == 0
        assert pieces_of_one[-1].end == captured.log.end
        assert all(a.end == b.start for a, b in pairwise(pieces_of_one))


def test_windows_hold_the_bytes_of_their_records(captured):
    """Callers may read them."""
    for piece in walk(captured.log, 0, captured.log.end, window=5000):
        for entry in piece.entries if isinstance(piece, Window) else ():
            at = entry.phy_offset - piece.start
            assert piece.data[at : at + entry.size] == captured.log.read(entry.phy_offset, entry.size)


def test_short_and_missing_files_are_gaps(tmp_path):
    """Up to where the next one begins."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    os.truncate(root / "commitlog" / ("0" * 20), 20_000)
    (root / "commitlog" / f"{golden.FILE_SIZE:020d}").unlink()
    with StoreDirectory.open(root) as directory:
        gaps = [piece for piece in walk(directory.log, 0, directory.log.end) if isinstance(piece, Gap)]
        log = list(walk_log(directory.log))
    assert [gap.end for gap in gaps[:2]] == [golden.FILE_SIZE, 2 * golden.FILE_SIZE]
    assert 19_000 - 4_096 < gaps[0].start <= 20_000
    assert gaps[1].start == golden.FILE_SIZE
    assert [piece for piece in log if isinstance(piece, Gap)] == [
        Gap(gaps[0].start, 2 * golden.FILE_SIZE, gaps[0].reason)
    ]


def test_what_lies_behind_a_gap_belongs_to_the_log_or_not(captured):
    """In the last file time and numbers decide, in others nothing else can be."""
    *_, last = (piece for piece in walk_log(captured.log) if isinstance(piece, Window))
    head = head_of(last.entries)
    key, (number, phy_offset) = next(iter(head.firsts.items()))
    log = captured.log
    assert goes_on_behind(log, head, head.timestamp, lambda k: number if k == key else 0)
    assert not goes_on_behind(log, head, head.timestamp + 1, lambda _: 0)
    assert not goes_on_behind(log, head, 0, lambda k: number + 1 if k == key else 0)
    assert goes_on_behind(log, head, 0, lambda k: number + 1 if k == key else 0, lambda *_: phy_offset)
    first = head_of(next(iter(walk_log(log))).entries)
    assert goes_on_behind(log, first, first.timestamp + 1, lambda _: 0)

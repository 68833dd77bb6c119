"""Two logs held against each other."""

import pytest

from tests.helpers import log_bytes, open_store, put
from twinlog.store.integrity.digest import BLOCK_SIZE, LogDigests, digest
from twinlog.store.offline.diff import ComparedLog, DiffVerdict, diff
from twinlog.store.offline.directory import StoreDirectory

FILE_SIZE = 1 << 20


def side(root, digests=None):
    directory = StoreDirectory.open(root)
    return ComparedLog(str(root), directory.log, directory.queues, digests=digests)


@pytest.fixture
def pair(tmp_path):
    """Two stores with one log of some blocks."""
    left, right = (open_store(tmp_path / name, file_size=FILE_SIZE) for name in "ab")
    bodies = [bytes([i % 256]) * 4000 for i in range(300)]
    put(left, *bodies)
    right.commit_log.append_raw(log_bytes(left))
    assert log_bytes(left) == log_bytes(right)
    return tmp_path / "a", tmp_path / "b", left, right


def test_equal_logs(pair):
    a, b, left, _ = pair
    report = diff(side(a), side(b))
    assert (report.verdict, report.difference) == (DiffVerdict.EQUAL, None)
    assert report.read_bytes == left.max_offset


@pytest.mark.parametrize("at", [0, 4, BLOCK_SIZE - 1, BLOCK_SIZE, FILE_SIZE, -1])
def test_the_first_and_last_byte_that_differ_are_found(pair, at):
    """Whichever block and file it is in."""
    a, b, left, right = pair
    at = at if at >= 0 else left.max_offset - 1
    file = right.commit_log.files.file_at(at)
    before = file.read(at - file.start, 1)
    file.write_at(at - file.start, bytes([before[0] ^ 0x41]))
    found = diff(side(a), side(b)).difference
    assert found is not None
    assert (found.first_offset, found.last_offset, found.blocks) == (at, at, 1)
    assert found.left.problem is None
    assert found.left.start_offset <= at < found.left.end_offset


def test_several_differences_are_counted(pair):
    a, b, _, right = pair
    file = right.commit_log.files.files[0]
    for block in (1, 3, 7):
        file.write_at(block * BLOCK_SIZE + 100, b"difference")
    found = diff(side(a), side(b)).difference
    assert found is not None
    assert BLOCK_SIZE + 100 <= found.first_offset < BLOCK_SIZE + 110
    assert 7 * BLOCK_SIZE + 100 <= found.last_offset < 7 * BLOCK_SIZE + 110
    assert found.blocks == 3


def digests_of(store):
    data, found = log_bytes(store), LogDigests.beginning_at(0)
    end = len(data) // BLOCK_SIZE * BLOCK_SIZE
    found.extend(b"".join(digest(data[at : at + BLOCK_SIZE]) for at in range(0, end, BLOCK_SIZE)), end)
    return found


def test_digests_that_are_trusted_spare_reading(pair):
    a, b, left, right = pair
    report = diff(side(a, digests_of(left)), side(b, digests_of(right)))
    assert report.verdict is DiffVerdict.EQUAL
    assert report.digest_bytes == left.max_offset // BLOCK_SIZE * BLOCK_SIZE
    assert report.read_bytes == left.max_offset % BLOCK_SIZE


def test_where_digests_differ_the_bytes_are_read(pair):
    a, b, left, right = pair
    right.commit_log.files.files[0].write_at(5 * BLOCK_SIZE + 7, b"\xee")
    report = diff(side(a, digests_of(left)), side(b, digests_of(right)))
    assert report.difference is not None
    assert report.difference.first_offset == 5 * BLOCK_SIZE + 7
    assert report.read_bytes == BLOCK_SIZE + left.max_offset % BLOCK_SIZE


def test_a_file_that_is_missing_in_the_middle_is_a_difference(pair):
    a, b, left, right = pair
    end = left.max_offset
    put(left, *(bytes(4000) for _ in range(300)))
    right.commit_log.append_raw(log_bytes(left)[end:])
    (b / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    report = diff(side(a), side(b))
    assert report.difference is not None
    assert FILE_SIZE <= report.difference.first_offset < FILE_SIZE + 4  # A size begins with zeros.
    assert report.difference.right.problem is not None
    assert report.difference.right.message is None

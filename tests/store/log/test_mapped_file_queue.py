"""Files of one size as one sequence of bytes, and what a start finds in a directory."""

import os
import signal
import subprocess
import sys

import pytest

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.mapped_file import WRITE_SIZE_MAX, MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue

SIZE = 8192


def queue_in(directory, **options):
    return MappedFileQueue(directory, SIZE, "sizeKey", **options)


def filled(directory, count, **options):
    """A queue of full files, the byte of each of which is its number."""
    queue = queue_in(directory, **options)
    for number in range(1, count + 1):
        queue.create((number - 1) * SIZE).append(bytes([number]) * SIZE)
    return queue


def test_files_are_found_again_in_order(tmp_path):
    filled(tmp_path, 12).close()
    queue = queue_in(tmp_path)
    queue.load()
    assert [file.start for file in queue.files] == [n * SIZE for n in range(12)]
    assert (queue.min_offset, queue.max_offset) == (0, 12 * SIZE)
    assert queue.file_at(3 * SIZE + 5).read(5, 1) == b"\4"
    assert queue.file_at(-1) is queue.file_at(12 * SIZE) is None


def test_a_missing_directory_is_an_empty_queue(tmp_path):
    queue = queue_in(tmp_path / "none")
    queue.load()
    assert (queue.files, queue.min_offset, queue.max_offset) == ([], 0, 0)
    assert not (tmp_path / "none").exists()


def test_foreign_entries_are_left_alone(tmp_path):
    filled(tmp_path, 1).close()
    for name in ("abc", "123", f"{SIZE:020}x", "00000000000000000000.bak"):
        (tmp_path / name).write_text("x")
    (tmp_path / f"{SIZE:020}").mkdir()
    queue = queue_in(tmp_path)
    queue.load()
    assert len(queue.files) == 1
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: os.truncate(d / f"{SIZE:020}", SIZE + 1), "too long.*truncate -s"),
        (lambda d: os.truncate(d / f"{SIZE:020}", SIZE - 1), "too short.*copy this file"),
        (lambda d: [os.truncate(path, SIZE - 1) for path in d.iterdir()], "Set sizeKey to the size"),
        (lambda d: (d / f"{SIZE:020}").unlink(), "missing"),
        (lambda d: (d / f"{SIZE:020}").rename(d / f"{SIZE + 1:020}"), "missing"),
    ],
)
def test_files_that_do_not_fit_together_are_named(tmp_path, change, says):
    filled(tmp_path, 3).close()
    change(tmp_path)
    with pytest.raises(StoreDirectoryError, match=says):
        queue_in(tmp_path).load()
    assert len(list(tmp_path.iterdir())) in (2, 3)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1])
def test_a_file_that_a_crash_left_unfinished_is_removed(tmp_path, size):
    filled(tmp_path, 2).close()
    (tmp_path / f"{2 * SIZE:020}").write_bytes(bytes(size))
    queue = queue_in(tmp_path)
    queue.load()
    assert len(queue.files) == 2
    assert not (tmp_path / f"{2 * SIZE:020}").exists()


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("offset", [0, 1, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE - 1, 3 * SIZE, 4 * SIZE])
def test_what_is_cut_does_not_come_back(tmp_path, offset, preallocate):
    queue = filled(tmp_path, 3, preallocate=preallocate)
    queue.cut(offset)
    kept = min(offset, 3 * SIZE)
    assert queue.max_offset == kept
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert content.rstrip(b"\0") == (b"\1" * SIZE + b"\2" * SIZE + b"\3" * SIZE)[:kept]
    assert len(content) == -(-kept // SIZE) * SIZE
    if kept % SIZE:
        queue.files[-1].append(b"\7")
        assert queue.files[-1].read(0, SIZE).rstrip(b"\0")[-1] == 7
    again = queue_in(tmp_path)
    again.load()
    assert again.max_offset == len(content)


def test_the_first_file_keeps_the_numbering(tmp_path):
    """With its early files gone, even an empty queue goes on where it was."""
    queue = filled(tmp_path, 3)
    for file in queue.files[:2]:
        file.delete()
    del queue.files[:2]
    queue.cut(0)
    assert (queue.min_offset, queue.max_offset) == (2 * SIZE, 2 * SIZE)
    assert queue.files[0].is_clear_from(0)


def test_a_rewound_queue_still_holds_what_is_written_over(tmp_path):
    queue = filled(tmp_path, 3)
    assert queue.rewind(SIZE + 10)
    assert queue.max_offset == SIZE + 10
    assert queue.files[-1].read(10, 1) == b"\2"
    assert not queue.rewind(SIZE + 5)


@pytest.mark.parametrize("holes", [False, True])
def test_the_end_of_data_is_found(tmp_path, holes):
    size = 5 << 20
    file = MappedFile.create(tmp_path / "f", 0, size, preallocate=not holes)
    assert file.is_clear_from(0)
    assert file.data_end(0) == 0
    file.write_at(3 << 20, b"x")
    assert file.data_end(0) == (3 << 20) + 1
    assert not file.is_clear_from(0)
    assert not file.is_clear_from(3 << 20)
    assert file.is_clear_from((3 << 20) + 1)
    assert file.data_end((3 << 20) + 1) == (3 << 20) + 1
    file.write_at(size - 1, b"x")
    assert not file.is_clear_from(size - 1)
    assert file.data_end(7) == size
    file.close()


def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match=r"large|space"):  # The second on tmpfs.
        MappedFile.create(tmp_path / "f", 0, 1 << 62, preallocate=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("call", "preallocate"), [("ftruncate", False), ("posix_fallocate", True)])
def test_a_file_has_its_length_from_the_first(tmp_path, call, preallocate):
    """A process that dies while it makes a file leaves nothing: RocketMQ does not start over a file that is too short."""
    script = f"""
import os, signal
from pathlib import Path
from twinlog.store.log.mapped_file import WRITE_SIZE_MAX, MappedFile

os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
MappedFile.create(Path({str(tmp_path)!r}) / ("0" * 20), 0, 4096, preallocate={preallocate})
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 6))
def test_whoever_dies_while_a_queue_is_cut_leaves_one_that_opens(tmp_path, number):
    filled(tmp_path, 3).close()
    script = f"""
import os, signal
from pathlib import Path
from twinlog.store.log.mapped_file_queue import MappedFileQueue

queue = MappedFileQueue(Path({str(tmp_path)!r}), {SIZE}, "sizeKey")
queue.load()
calls = []

def dying(call):
    def do(*args):
        calls.append(call)
        if len(calls) == {number}:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return do

os.ftruncate, os.pwrite, os.unlink, os.fsync = map(dying, (os.ftruncate, os.pwrite, os.unlink, os.fsync))
queue.cut(2 * {SIZE} + 10)
"""
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    again = queue_in(tmp_path)
    again.load()
    again.cut(2 * SIZE + 10)
    assert again.files[-1].read(0, SIZE).rstrip(b"\0") == b"\3" * 10


def test_a_long_end_is_cleared(tmp_path):
    size = 5 << 20
    file = MappedFile.create(tmp_path / "f", 0, size, preallocate=True)
    file.write_at(0, b"\1" * size)
    file.clear_from((1 << 20) - 7)
    assert file.data_end(0) == (1 << 20) - 7
    assert (tmp_path / "f").stat().st_size == size
    file.close()


def test_much_is_written_in_pieces_and_what_a_failed_one_left_behind_is_known(tmp_path, monkeypatch):
    size, real, sizes = 4 * WRITE_SIZE_MAX, os.pwrite, []
    file = MappedFile.create(tmp_path / "0", 0, size, preallocate=False)
    data = os.urandom(3 * WRITE_SIZE_MAX - 5)

    def write(fd, piece, position):
        if len(sizes) == 5:
            raise OSError(28, "No space left on device")
        sizes.append(len(piece))
        return real(fd, piece, position)

    monkeypatch.setattr(os, "pwrite", write)
    file.append(data)
    assert sizes == [WRITE_SIZE_MAX, WRITE_SIZE_MAX, WRITE_SIZE_MAX - 5]
    assert file.read(0, len(data)) == data
    sizes.append(0)
    with pytest.raises(OSError, match="No space"):
        file.write_at(0, data)
    assert (file.wrote, file.torn_end) == (len(data), WRITE_SIZE_MAX)

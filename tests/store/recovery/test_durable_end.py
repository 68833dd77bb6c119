"""A start over a log that lost files, or its tail: the loss is reported, and remembered."""

import pytest
import trio

from tests.store.crashes import FILE_SIZE, crash, put
from tests.store.message_stores import opened
from tests.store.records import put_message
from twinlog.store.recovery.durable_end import NAME, START_NAME

REPORTED = "ends before its last durable end"


@pytest.fixture
def stopped(tmp_path):
    """Five files, after a clean stop."""
    store = opened(tmp_path)
    put(store, range(50))
    trio.run(store.close)
    return tmp_path


def files(root):
    return sorted((root / "commitlog").iterdir())


def remove(*paths):
    for path in paths:
        path.unlink()


@pytest.mark.parametrize(("kept", "end"), [(4, 4 * FILE_SIZE), (1, FILE_SIZE), (0, 0)])
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_last_files_that_are_gone(stopped, capsys, kept, end, stop):
    if stop == "crash":
        crash(opened(stopped))
    remove(*files(stopped)[kept:])
    capsys.readouterr()
    store = opened(stopped)
    assert REPORTED in capsys.readouterr().out
    assert store.max_offset <= end
    known = store.max_offset + store.lost_bytes
    assert known > 4 * FILE_SIZE
    trio.run(store.close)
    again = opened(stopped)  # With a recovery point of its own by now.
    assert REPORTED in capsys.readouterr().out
    assert (again.max_offset + again.lost_bytes, again.statistics().lost_bytes) == (known, again.lost_bytes)
    put(again, range(50, 110))
    assert again.lost_bytes == 0
    trio.run(again.close)
    crash(opened(stopped))
    assert REPORTED not in capsys.readouterr().out
    assert not (stopped / "twinlog" / NAME).exists()


def test_all_files_and_side_files_are_gone(stopped, capsys):
    """The checkpoint covers messages, and there is none."""
    remove(*files(stopped), stopped / "twinlog" / "recovery-point")
    capsys.readouterr()
    store = opened(stopped)
    assert REPORTED in capsys.readouterr().out
    assert store.lost_bytes > 0
    crash(store)


def test_the_end_that_was_on_the_disk_is_zero(stopped, capsys):
    last = files(stopped)[-1]
    last.write_bytes(bytes(FILE_SIZE))
    capsys.readouterr()
    store = opened(stopped)
    assert REPORTED in capsys.readouterr().out
    assert store.lost_bytes > 0
    store.accept_end()
    crash(store)
    crash(opened(stopped))
    assert REPORTED not in capsys.readouterr().out


def test_first_files_that_are_gone(stopped, capsys):
    """Reported at each start, and known between them, until they are back."""
    kept = {path: path.read_bytes() for path in files(stopped)[:2]}
    remove(*kept)
    for _ in range(2):
        capsys.readouterr()
        store = opened(stopped)
        told = capsys.readouterr().out
        assert "lost its first files since the last stop" in told
        assert f"bytes={2 * FILE_SIZE}" in told
        assert REPORTED not in told
        assert (store.min_offset, store.lost_bytes) == (2 * FILE_SIZE, 0)
        assert store.lost_start == (0, 2 * FILE_SIZE)
        trio.run(store.close)
    for path, data in kept.items():
        path.write_bytes(data)
    capsys.readouterr()
    store = opened(stopped)
    assert "begins later" not in capsys.readouterr().out
    assert (store.min_offset, store.lost_start) == (0, None)
    assert not (stopped / "twinlog" / START_NAME).exists()
    crash(store)


def test_what_retention_would_have_deleted_is_not_missing(stopped, capsys):
    remove(*files(stopped)[:2])
    store = opened(stopped)
    for shortened in store.retention.shortened:
        shortened(3 * FILE_SIZE)
    assert store.lost_start is None
    crash(store)
    capsys.readouterr()
    crash(opened(stopped))
    assert "begins later" not in capsys.readouterr().out


@pytest.mark.parametrize("raw", [b"", b"x", b"12 3"])
def test_a_note_of_the_start_that_cannot_be_read_is_none(stopped, raw):
    (stopped / "twinlog" / START_NAME).write_bytes(raw)
    store = opened(stopped)
    assert store.lost_start is None
    crash(store)


def test_what_was_not_on_the_disk_may_go(tmp_path, capsys):
    """A power cut takes what was not flushed, and files that held nothing else."""
    store = opened(tmp_path)
    put(store, range(5))
    trio.run(lambda: store._parts.queue_flusher.flush(thorough=True))
    put(store, range(5, 50))
    crash(store)
    remove(*files(tmp_path)[1:])
    capsys.readouterr()
    store = opened(tmp_path)
    assert REPORTED not in capsys.readouterr().out
    assert store.lost_bytes == 0
    crash(store)


def test_a_note_that_cannot_be_read_is_none(stopped, capsys):
    (stopped / "twinlog" / NAME).write_bytes(b"nonsense")
    capsys.readouterr()
    store = opened(stopped)
    assert "a side file is not used" in capsys.readouterr().out
    assert store.lost_bytes == 0
    store.put([put_message()])
    crash(store)

"""Cut bytes are kept for people: as a store of their own, in the list, and in the store's statistics."""

import errno
import os
import shutil

import pytest

from tests.store.cutting import FILE_SIZE, check_is, feed, history, open_slave
from twinlog.store.errors import StoreError
from twinlog.store.offline.copy.pinned import pinned_log
from twinlog.store.offline.diff import ComparedLog, DiffVerdict, diff
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory, Writer
from twinlog.store.offline.dump import Selection, dump
from twinlog.store.offline.finding import FindingKind
from twinlog.store.offline.info import inspect
from twinlog.store.offline.verify.verify import VerifyVerdict, verify
from twinlog.store.truncation.divergent import DivergentDirectory, read_note
from twinlog.store.truncation.intent import NAME

OPTIONS = DirectoryOptions(log_file_size=FILE_SIZE)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return history(tmp_path_factory.mktemp("old"))


@pytest.fixture
def slave(tmp_path, old):
    store = open_slave(tmp_path / "store")
    feed(store, old)
    return store


async def test_a_directory_of_what_was_cut_is_a_store_of_its_own(tmp_path, old, slave):
    """Beside the master's log it has no difference: here it was cut for no reason."""
    offset = old.entries[20].phy_offset
    before = shutil.copytree(tmp_path / "store", tmp_path / "before")
    await slave.truncate(offset, "no reason")
    (kept,) = slave.statistics().divergent
    with StoreDirectory.open(kept.path) as cut, StoreDirectory.open(before, OPTIONS) as whole:
        assert (cut.log.file_size, cut.log.min_offset, cut.writer) == (FILE_SIZE, offset, Writer.TWINLOG)
        messages = list(dump(cut.log, Selection()))
        assert [message.phy_offset for message in messages] == [entry.phy_offset for entry in old.entries[20:]]
        report = diff(ComparedLog("cut", cut.log, cut.queues), ComparedLog("whole", whole.log, whole.queues))
        assert (report.verdict, report.common_start, report.common_end) == (DiffVerdict.EQUAL, offset, old.end)
        info = inspect(cut)
        assert (info.log.min_offset, info.log.end_offset, info.problems) == (offset, old.end, ())
        assert verify(cut).records == len(messages)
        with pinned_log(cut) as held_open:
            assert held_open.min_offset == offset, "for `log dump` and `log diff`, too"
    with StoreDirectory.open(tmp_path / "store", OPTIONS) as directory:
        (found,) = inspect(directory).divergent
        assert (found.path, found.first_offset, found.size_bytes, found.why) == (
            str(kept.path),
            offset,
            old.end - offset,
            "no reason",
        )


async def test_every_cut_is_kept(tmp_path, old, slave):
    """Also of the same bytes, and what is no such directory is not listed."""
    offset = old.entries[-3].phy_offset
    for why in ("first", "second"):
        await slave.truncate(offset, why)
        feed(slave, old)
    await slave.reset("third")
    divergent = tmp_path / "store/twinlog/divergent"
    (divergent / "notes").mkdir()
    (divergent / "broken").mkdir()
    (divergent / "broken/divergent.json").write_text("{")
    kept = slave.statistics().divergent
    assert {entry.why: (entry.first, entry.size) for entry in kept} == {
        "first": (offset, old.end - offset),
        "second": (offset, old.end - offset),
        "third": (0, old.end),
    }
    assert len({entry.path for entry in kept}) == 3
    await slave.close()
    slave = open_slave(tmp_path / "store")
    assert slave.statistics().divergent == kept
    shutil.rmtree(kept[0].path)
    assert slave.statistics().divergent == kept[1:]
    await slave.close()


@pytest.mark.parametrize("cut", ["truncate", "reset"])
async def test_without_room_to_keep_it_nothing_is_cut(tmp_path, old, slave, monkeypatch, cut):
    def full(*_args: object, **_more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite" if cut == "truncate" else "link", full)
        with pytest.raises(StoreError, match=r"the log was not cut: its bytes from .* cannot be kept .*No space left"):
            await (slave.truncate(old.entries[5].phy_offset, "a test") if cut == "truncate" else slave.reset("a test"))
    assert list((tmp_path / "store/twinlog/divergent").iterdir()) == []
    assert not (tmp_path / "store/twinlog" / NAME).exists()
    assert slave.flags.why_not_appendable == ""
    check_is(slave, old)
    await slave.truncate(old.entries[5].phy_offset, "there is room again")
    check_is(slave, old.below(old.entries[5].phy_offset))


async def test_across_disks_a_cut_is_copied_and_a_whole_log_refused(tmp_path, old, slave, monkeypatch):
    def far(*_args: object, **_more: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", far)
    with pytest.raises(StoreError, match=r"cannot be linked .* only where both are on one file system"):
        await slave.reset("a test")
    check_is(slave, old)
    await slave.truncate(FILE_SIZE, "a test")
    (kept,) = slave.statistics().divergent
    with StoreDirectory.open(kept.path) as cut:
        found = [message.phy_offset for message in dump(cut.log, Selection())]
    assert found == [entry.phy_offset for entry in old.entries if entry.phy_offset >= FILE_SIZE]


async def test_the_tools_tell_of_a_cut_that_is_unfinished(tmp_path, old, slave, monkeypatch):
    """The disk breaks in the middle of it."""

    def broken(*_args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    offset = old.entries[5].phy_offset
    with monkeypatch.context() as patched:
        patched.setattr("twinlog.store.truncation.truncation.cut_on_disk", broken)
        with pytest.raises(
            StoreError, match=rf"cut of the log at {offset} failed on the disk .* the next start finishes it"
        ):
            await slave.truncate(offset, "a test")
    assert "the next start finishes it" in slave.flags.why_not_appendable
    slave._release()
    with StoreDirectory.open(tmp_path / "store", OPTIONS) as directory:
        (told,) = (finding for finding in inspect(directory).problems if finding.kind is FindingKind.UNFINISHED_CUT)
        assert (told.file, told.phy_offset) == ("twinlog/truncate", offset)
        assert f"the log is being cut at {offset} (a test)" in told.message
        assert verify(directory).verdict is VerifyVerdict.DAMAGED
    slave = open_slave(tmp_path / "store")
    check_is(slave, old.below(offset))
    await slave.close()
    with StoreDirectory.open(tmp_path / "store", OPTIONS) as directory:
        assert verify(directory).findings == ()


def test_what_is_no_note_is_none(tmp_path):
    assert read_note(tmp_path) is None
    for text in ("", "[]", "{}", '{"version": 2}', '{"version": 1, "first": "x"}'):
        (tmp_path / "divergent.json").write_text(text)
        assert read_note(tmp_path) is None
    assert DivergentDirectory(tmp_path / "none").list() == ()

"""The digest beside a log that is written, cut, deleted from, and written by another broker while we are stopped."""

import errno
import os
import shutil

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import log_bytes
from tests.store import golden
from tests.store.digesting import FILE_SIZE, fill, follow, opened
from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.integrity.digest import BLOCK_SIZE, LogDigests, decode, digests_of, floor_block
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore


def covered(store):
    """The digests as they are, and as they should be for their range."""
    digests = store.digest.digests
    data = log_bytes(store)[digests.start - store.min_offset : digests.end - store.min_offset]
    return bytes(digests.entries[digests.dead * 16 :]), digests_of(data, digests.start)


async def test_what_is_covered(tmp_path, autojump_clock):
    """Whole blocks while running, everything after a clean stop, whole blocks of that after the next start."""
    store = opened(tmp_path)
    fill(store, 500_000)
    await follow(store)
    assert (store.digest.digests.start, store.digest.digests.end) == (0, floor_block(store.max_offset))
    found, expected = covered(store)
    assert found == expected
    end = store.max_offset
    await store.close()
    again = opened(tmp_path)
    assert (again.max_offset, again.digest.digests.end) == (end, floor_block(end))
    assert again.digest.suspects == []
    found, expected = covered(again)
    assert found == expected
    again._release()


async def test_a_log_that_grows_is_followed_once_a_second(tmp_path, autojump_clock, nursery):
    store = opened(tmp_path)
    nursery.start_soon(store.digest.run)
    ends = set()
    for _ in range(300):
        fill(store, BLOCK_SIZE)
        await trio.sleep(0.01)
        ends.add(store.digest.digests.end)
    assert 2 <= len(ends) <= 5
    nursery.cancel_scope.cancel()
    store._release()


async def test_it_follows_the_log_by_itself(tmp_path, nursery):
    store = opened(tmp_path)
    await nursery.start(store.run)
    fill(store, 200_000)
    with trio.fail_after(20):
        while store.digest.digests.end < floor_block(store.max_offset):
            await trio.sleep(0.05)
    nursery.cancel_scope.cancel()


async def stopped(root, size=500_000):
    """A store that was closed cleanly with `size` bytes; where it ends."""
    store = opened(root)
    fill(store, size)
    end = store.max_offset
    await store.close()
    return end


def without_us(root, tmp_path, action):
    """Let another broker, without a digest, change the store."""
    shutil.move(root / "twinlog", tmp_path / "ours")
    action()
    shutil.rmtree(root / "twinlog", ignore_errors=True)
    shutil.move(tmp_path / "ours", root / "twinlog")


async def test_rocketmq_appended_meanwhile(tmp_path, autojump_clock):
    root = tmp_path / "store"
    end = await stopped(root)

    def append():
        other = opened(root)
        fill(other, 300_000)
        other._release()

    without_us(root, tmp_path, append)
    store = opened(root)
    assert store.max_offset > end
    assert store.digest.digests.end == floor_block(end)  # What was known is kept; a block that was not whole is not.
    await follow(store)
    found, expected = covered(store)
    assert (found, store.digest.digests.end) == (expected, floor_block(store.max_offset))
    store._release()


@pytest.mark.parametrize("back", [1, 100_000, 250_000, 480_000])
async def test_somebody_cut_the_log_and_wrote_it_anew(tmp_path, autojump_clock, back):
    """What still fits is kept, however far back that is."""
    root = tmp_path / "store"
    end = await stopped(root)

    def write_anew():
        other = opened(root)
        cut = end - back
        for start in range(0, end + 200_000, FILE_SIZE):
            if not other.commit_log.files.file_at(start):
                other.commit_log.files.create(start)
        for file in other.commit_log.files.files:
            position = min(max(0, cut - file.start), FILE_SIZE)
            os.pwrite(file.fd, b"y" * (FILE_SIZE - position), position)
        other._release()

    without_us(root, tmp_path, write_anew)
    store = MessageStore(StoreConfig(root=root, mapped_file_size_commit_log=FILE_SIZE))
    store.commit_log.files.load()  # As it lies: records are of no concern here.
    store.digest.open(after_crash=False, durable_offset=0)
    assert store.digest.digests.end == floor_block(end - back)
    found, expected = covered(store)
    assert found == expected
    store._release()


@pytest.mark.parametrize("version", golden.VERSIONS)
async def test_what_rocketmq_itself_appended(tmp_path, autojump_clock, version):
    """We had the first part of a real broker's log, stopped, and find all of it."""
    whole = golden.unpack(version, "master", tmp_path)
    end = MessageStore(golden.config(whole))
    end.load()
    stops = [unit.phy_offset for _, _, queue in end.queues() if (unit := queue.unit(queue.max_offset // 2)) is not None]
    cut, log_end = sorted(stops)[len(stops) // 2], end.max_offset
    end._release()
    shutil.rmtree(whole / "twinlog")
    part = tmp_path / "part"
    shutil.copytree(whole / "commitlog", part / "commitlog")
    for path in (part / "commitlog").iterdir():
        start = int(path.name)
        if start >= cut:
            path.unlink()
        elif start + golden.FILE_SIZE > cut:
            os.truncate(path, cut - start)
            os.truncate(path, golden.FILE_SIZE)
    ours = MessageStore(golden.config(part))
    ours.load()
    assert ours.max_offset == cut > 0
    await ours.close()
    shutil.copy(part / "twinlog" / "digest", tmp_path / "digest")
    shutil.rmtree(part)
    (whole / "twinlog").mkdir()
    shutil.move(tmp_path / "digest", whole / "twinlog" / "digest")
    store = MessageStore(golden.config(whole))
    store.load()
    assert (store.max_offset, store.digest.digests.end) == (log_end, floor_block(cut))
    await follow(store)
    found, expected = covered(store)
    assert (found, store.digest.digests.end) == (expected, floor_block(log_end))
    await store.scrub.scrub()
    assert (store.damaged.total, store.statistics().in_doubt_bytes, store.statistics().wrong_units) == (0, 0, 0)
    store._release()


async def test_a_shorter_log_cuts_the_digests(tmp_path, autojump_clock):
    root = tmp_path / "store"
    await stopped(root)
    files = sorted((root / "commitlog").iterdir())
    for path in files[2:]:
        path.unlink()
    shutil.rmtree(root / "consumequeue")
    store = opened(root)
    assert store.max_offset <= 2 * FILE_SIZE
    assert store.digest.digests.end == floor_block(store.max_offset)
    found, expected = covered(store)
    assert found == expected
    store._release()


@pytest.mark.parametrize("damage", ["header", "page", "short", "gone", "of another log"])
async def test_a_file_that_is_not_right_is_made_anew(tmp_path, autojump_clock, damage):
    root = tmp_path / "store"
    await stopped(root)
    path = root / "twinlog" / "digest"
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[3] ^= 1
    elif damage == "page":
        content[4096] ^= 1
    elif damage == "short":
        del content[5000:]
    elif damage == "of another log":
        content = bytearray(LogDigests.beginning_at(1 << 40).encode_header(5))
    path.write_bytes(content)
    if damage == "gone":
        path.unlink()
    store = opened(root)
    assert store.digest.digests.end == 0
    await follow(store)
    found, expected = covered(store)
    assert (found, store.digest.digests.end) == (expected, floor_block(store.max_offset))
    store._release()


async def test_after_a_crash_what_the_file_has_is_kept(tmp_path, autojump_clock):
    """Its digests may be of lost bytes: such digests are unreliable, not evidence of damage."""
    store = opened(tmp_path / "a")
    fill(store, 500_000)
    await follow(store)
    end = store.digest.digests.end
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store._release()
    again = opened(tmp_path / "b")
    assert again.digest.digests.end == again.digest.doubtful_end == end == 458_752
    assert again.digest.doubtful_from < end
    found, expected = covered(again)
    assert found == expected
    again._release()


async def test_files_that_are_deleted(tmp_path, autojump_clock):
    """Of a block across the end of a file, what is left has a digest of its own."""
    root = tmp_path / "store"
    store = opened(root)
    fill(store, 500_000)
    await follow(store)
    for _ in range(3):
        store.commit_log.files.files.pop(0).delete()
        fill(store, 100_000)
        await follow(store)
        assert store.digest.digests.start == store.min_offset
        found, expected = covered(store)
        assert found == expected
    await store.close()
    again = opened(root)
    assert (again.digest.digests.start, again.digest.digests.end) == (300_000, floor_block(again.max_offset))
    again._release()


@pytest.mark.parametrize("ends", ["stop", "crash"])
async def test_files_that_are_deleted_and_nothing_is_written(tmp_path, autojump_clock, ends):
    """What is left of the first block has a digest of its own after the next start, too."""
    root = tmp_path / "store"
    await stopped(root)
    store = opened(root)
    store.commit_log.files.files.pop(0).delete()
    await follow(store)
    if ends == "stop":
        await store.close()
    else:
        store._release()
    again = opened(root)
    assert again.digest.digests.start == FILE_SIZE
    found, expected = covered(again)
    assert (found, again.digest.digests.end) == (expected, floor_block(again.max_offset))
    again._release()


async def test_a_start_writes_no_more_than_it_must(tmp_path, autojump_clock):
    """The file of a large log is large; only its header and last page change."""
    root = tmp_path / "store"
    await stopped(root)
    path = root / "twinlog" / "digest"
    inode = path.stat().st_ino
    store = opened(root)
    assert decode(path.read_bytes()).stopped_ms == 0
    fill(store, 300_000)
    await follow(store)
    await store.close()
    assert path.stat().st_ino == inode
    assert decode(path.read_bytes()).stopped_ms == 1000


async def test_files_that_are_deleted_while_we_are_stopped(tmp_path, autojump_clock):
    root = tmp_path / "store"
    await stopped(root)
    sorted((root / "commitlog").iterdir())[0].unlink()
    store = opened(root)
    assert store.digest.digests.start == FILE_SIZE
    found, expected = covered(store)
    assert found == expected
    store._release()


async def test_a_cut_while_a_thread_reads(tmp_path, nursery, autojump_clock):
    """What it brings is of bytes that are no more."""
    store = opened(tmp_path)
    fill(store, 500_000)
    nursery.start_soon(store.digest.advance)
    await trio.lowlevel.checkpoint()  # It is on its way.
    store.commit_log.files.cut(150_000)
    store.digest.truncated(150_000)
    await trio.testing.wait_all_tasks_blocked()
    fill(store, 200_000, body=b"z" * 2000)
    await follow(store)
    found, expected = covered(store)
    assert (found, store.digest.digests.end) == (expected, floor_block(store.max_offset))
    store._release()


async def test_a_cut_reaches_the_file_at_once(tmp_path, autojump_clock):
    """A crash right behind it must not bring back digests of bytes that were cut."""
    store = opened(tmp_path)
    fill(store, 500_000)
    await follow(store)
    store.digest.truncated(150_000)
    reader = MessageStore(store.config)
    reader.digest.log = store.commit_log
    assert reader.digest._load() == (0, True)
    assert reader.digest.digests.end == 2 * BLOCK_SIZE
    store._release()


async def test_a_fresh_slave_begins_in_the_middle(tmp_path, autojump_clock):
    store = opened(tmp_path)
    store.start_at(3 * FILE_SIZE)
    fill(store, 200_000)
    await follow(store)
    assert store.digest.digests.start == 3 * FILE_SIZE
    found, expected = covered(store)
    assert (found, store.digest.digests.end) == (expected, floor_block(store.max_offset))
    store._release()


async def test_a_last_block_that_changed_while_nobody_wrote_is_suspect(tmp_path, autojump_clock):
    root = tmp_path / "store"
    end = await stopped(root, 400_000)
    at = floor_block(end) + 5000
    path = root / "commitlog" / f"{at - at % FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    assert at < end - 4000  # Not in the last record, which every start looks at.
    data[at % FILE_SIZE] ^= 1
    path.write_bytes(data)
    store = opened(root)
    assert [(block.start, block.end) for block in store.digest.suspects] == [(floor_block(end), end)]
    store._release()


steps = st.tuples(
    st.sampled_from(["append", "digest", "digest", "cut", "delete", "stop", "crash"]),
    st.floats(0, 0.999),
    st.integers(0, 5),
)


@given(st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_whatever_happens_the_digests_are_those_of_the_bytes(tmp_path_factory, history):
    """Written, cut, deleted from, stopped and killed in any order."""
    root = tmp_path_factory.mktemp("digests") / "store"
    store, ends = opened(root), [0]
    for name, part, size in history:
        if name == "append":
            for _ in range(1 + 12 * size):
                store.put([put_message(body=bytes([size]) * 5000)])
                ends.append(store.max_offset)
            store.dispatch_pending()
        elif name == "digest":
            trio.run(store.digest.advance)
        elif name == "cut" and (left := [end for end in ends if end > store.min_offset]):
            cut = left[int(part * len(left))]
            store.commit_log.files.cut(cut)
            store._queues.truncate(cut)
            store.commit_log.next_queue_offsets = store._queues.next_offsets()
            store.commit_log.dispatched_offset = store.flusher.flushed_offset = cut
            for listener in store.on_truncate:
                listener(cut)
            ends = [end for end in ends if end <= cut]
        elif name == "delete" and len(store.commit_log.files.files) > 2:
            store.commit_log.files.files.pop(0).delete()
        elif name in ("stop", "crash"):
            if name == "stop":
                trio.run(store.close)
            else:
                store._release()
            store = opened(root)
        digests = store.digest.digests
        assert digests.start <= digests.end <= store.max_offset
        if store.min_offset <= digests.start:
            found, expected = covered(store)
            assert found == expected
    trio.run(follow, store)
    found, expected = covered(store)
    assert found == expected
    assert store.digest.digests.whole_end == max(store.min_offset, floor_block(store.max_offset))
    trio.run(store.scrub.scrub)
    assert (store.damaged.total, store.scrub.known.in_doubt.total) == (0, 0)
    store._release()


async def test_what_the_disk_does_not_read_counts_as_zeros(tmp_path, autojump_clock, monkeypatch):
    """The scrub reports it; the blocks behind it have digests all the same."""
    store = opened(tmp_path)
    fill(store, 300_000)
    real = LogRange.read

    def read(self, offset, size):
        if offset < 53_000 and offset + size > 52_000:
            raise OSError(errno.EIO, "Input/output error")
        return real(self, offset, size)

    monkeypatch.setattr(LogRange, "read", read)
    await follow(store)
    monkeypatch.undo()
    found, expected = covered(store)
    assert store.digest.digests.end == floor_block(store.max_offset)
    assert (found[:16] == expected[:16], found[16:] == expected[16:]) == (False, True)
    store._release()


async def test_a_disk_that_takes_no_digests_stops_nothing(tmp_path, autojump_clock):
    """They are only ours: messages are taken, and the next start computes them."""
    store = opened(tmp_path)
    fill(store, 200_000)
    os.close(store.digest._file._fd)
    store.digest._file._fd = os.open(tmp_path / "lock", os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file"):
        await store.digest.advance()
    await store.close()
    assert not (tmp_path / "abort").exists()
    again = opened(tmp_path)
    await follow(again)
    found, expected = covered(again)
    assert (found, again.digest.digests.end) == (expected, floor_block(again.max_offset))
    again._release()

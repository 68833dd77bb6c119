"""A slave's log is cut while it is in use: nothing of what was cut is served, found or comes back, whatever happens."""

import os
import random
import shutil
import time
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.store import golden
from tests.store.cutting import FILE_SIZE, NOW, History, check_is, content, feed, history, open_slave, opened
from tests.store.message_stores import settled
from tests.store.offline.killing import killed_at
from twinlog.store.config import BrokerRole
from twinlog.store.errors import StoreDirectoryError, StoreError, StoreNotWritableError
from twinlog.store.integrity.digest import digest
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.copy.rebuild import rebuild
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.dump import Selection, dump
from twinlog.store.offline.verify.verify import verify
from twinlog.store.read.get_message import GetStatus
from twinlog.store.truncation.intent import NAME

STEPS = ((os, "link"), (os, "unlink"), (os, "replace"), (os, "pwrite"), (os, "ftruncate"))


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> History:
    return history(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> History:
    """Another history, whose records have other lengths."""
    return history(tmp_path_factory.mktemp("other"), seed=5, count=30)


@pytest.fixture(scope="module")
def slave_directory(tmp_path_factory, old) -> Path:
    """A slave that has all of the old history, after a clean stop."""
    return made(tmp_path_factory.mktemp("slave") / "store", old)


def made(root: Path, what: History) -> Path:
    async def make():
        store = open_slave(root)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            feed(store, what)
            await settled(lambda: store.index.is_caught_up and store.index.phy_offset == what.end)
            nursery.cancel_scope.cancel()
        await store.close()

    trio.run(make)
    return root


def check_kept(root: Path, what: History, offset: int) -> None:
    """What was cut can be read with the tools for logs."""
    (path,) = (root / "twinlog/divergent").iterdir()
    assert path.name == f"{offset:020d}-{what.end - offset}"
    with StoreDirectory.open(path, DirectoryOptions(log_file_size=FILE_SIZE)) as directory:
        found = [message.phy_offset for message in dump(directory.log, Selection(from_offset=offset))]
    assert found == [entry.phy_offset for entry in what.entries if entry.phy_offset >= offset]


async def test_everything_ends_at_the_cut(tmp_path, old, slave_directory):
    """At each record, blank and file; and the store goes on from there with another history, stopped and started."""
    for offset in old.boundaries[:-1]:
        root = shutil.copytree(slave_directory, tmp_path / str(offset))
        store = open_slave(root)
        told = []
        store.on_truncate.append(lambda phy_offset, store=store, told=told: told.append((phy_offset, store.max_offset)))
        await store.truncate(offset, "a test")
        assert told == [(offset, offset)]
        assert not (root / "twinlog" / NAME).exists()
        check_is(store, old.below(offset))
        check_kept(root, old, offset)
        checkpoint = Checkpoint(root / "checkpoint")
        checkpoint.load()
        newest = max((entry.store_timestamp for entry in old.below(offset).entries), default=0)
        assert max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) <= newest
        assert checkpoint.index_msg_timestamp <= newest
        for entry in old.entries:
            assert (store.message_at(entry.phy_offset) is not None) == (entry.phy_offset < offset)
        (kept,) = store.statistics().divergent
        assert (kept.first, kept.size, kept.why) == (offset, old.end - offset, "a test")
        await store.close()
        store = open_slave(root)
        check_is(store, old.below(offset))
        feed(store, old)
        check_is(store, old)
        await store.close()
        shutil.rmtree(root)


async def test_queues_and_index_are_those_of_a_slave_that_never_had_more(tmp_path, old, slave_directory):
    for number, offset in enumerate(old.boundaries[:-1:5]):
        root = shutil.copytree(slave_directory, tmp_path / f"cut{number}")
        fresh = tmp_path / f"fresh{number}"
        store = open_slave(root)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await store.truncate(offset, "a test")
            await settled(
                lambda store=store, offset=offset: store.index.is_caught_up and store.index.phy_offset == offset
            )
            assert not (root / "twinlog/index-behind").exists()
            for entry in old.entries[::7]:
                key = entry.properties.split(b"\x02")[0].split(b"\x01")[1].decode()
                found = await store.index.find(entry.topic, key, 32, 0, 1 << 62)
                assert (entry.phy_offset in found) == (entry.phy_offset < offset)
            nursery.cancel_scope.cancel()
        await store.close()
        await trio.to_thread.run_sync(made_elsewhere, fresh, old.below(offset))
        assert content(root / "consumequeue") == content(fresh / "consumequeue")
        indexes = [list(content(each / "index").values()) for each in (root, fresh)]
        assert indexes[0] == indexes[1]


def made_elsewhere(root: Path, what: History) -> None:
    made(root, what)


@pytest.mark.parametrize("inside", [1, 4, 88, -1])
async def test_a_log_is_not_cut_inside_of_a_record(tmp_path, old, slave_directory, inside):
    store = open_slave(shutil.copytree(slave_directory, tmp_path / "store"))
    for entry in (old.entries[0], old.entries[20], old.entries[-1]):
        offset = entry.phy_offset + (inside if inside > 0 else entry.size - 1)
        with pytest.raises(
            StoreError, match=f"cannot be cut at {offset}: that is inside of the record at {entry.phy_offset}"
        ):
            await store.truncate(offset, "a test")
    for offset in (-1, old.end + 1):
        with pytest.raises(StoreError, match=f"cannot be cut at {offset}: it holds bytes 0 to {old.end}"):
            await store.truncate(offset, "a test")
    await store.truncate(old.end, "nothing to cut")
    assert not (store.config.root / "twinlog/divergent").exists()
    check_is(store, old)
    assert store.flags.why_not_appendable == ""
    await store.close()


async def test_a_log_is_not_cut_while_damaged_bytes_are_put_right(tmp_path, old, slave_directory, nursery):
    """A thread that writes late would put back what was cut, or write over what came since."""
    store = open_slave(shutil.copytree(slave_directory, tmp_path / "store"))
    async with store.repairs.turn:
        nursery.start_soon(store.truncate, old.entries[5].phy_offset, "a test")
        await wait_all_tasks_blocked(0.05)
        assert store.max_offset == old.end
    await settled(lambda: store.max_offset == old.entries[5].phy_offset)
    await settled(lambda: not store.flags.why_not_appendable)
    store._release()


async def test_a_masters_log_is_not_cut(tmp_path, old, slave_directory):
    store = opened(shutil.copytree(slave_directory, tmp_path / "store"), BrokerRole.ASYNC_MASTER, [NOW])
    for cut in (store.truncate(0, "a test"), store.reset("a test")):
        with pytest.raises(StoreError, match="only a slave's log can be cut"):
            await cut
    check_is(store, old)
    await store.close()


async def test_the_other_history_takes_its_place(tmp_path, old, other, slave_directory):
    """With services running, pulls in the hands of consumers, and the index following; then a crash."""
    root = shutil.copytree(slave_directory, tmp_path / "store")
    store = open_slave(root)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        held = store.get_message("T0", 0, 0, 32, None)
        assert held.status is GetStatus.FOUND
        first = bytes(held.buffers[0])
        with trio.fail_after(30):
            await store.truncate(0, "another history")
        assert store.get_message("T0", 0, 0, 32, None).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert bytes(held.buffers[0]) == first  # Its file is gone, not made zero.
        feed(store, other)
        check_is(store, other)
        await settled(lambda: store.index.is_caught_up and store.index.phy_offset == other.end)
        await store.flush()
        nursery.cancel_scope.cancel()
    crashed = shutil.copytree(root, tmp_path / "crashed")
    await store.close()
    for each in (root, crashed):
        store = open_slave(each)
        check_is(store, other)
        store._release()


@pytest.mark.parametrize("is_done", [True, False])
async def test_who_reads_what_is_cut_is_given_time(tmp_path, old, slave_directory, mock_clock, nursery, is_done):
    """Bytes in a view in use become zero after two seconds, or as soon as the view is released."""
    store = open_slave(shutil.copytree(slave_directory, tmp_path / "store"))
    entry, cut = old.entries[-1], old.entries[-3].phy_offset
    view = store.message_at(entry.phy_offset)
    record = bytes(view)
    nursery.start_soon(store.truncate, cut, "a test")
    await settled(lambda: store.max_offset == cut)
    for _ in range(30):  # Turns for the threads.
        await trio.to_thread.run_sync(time.sleep, 0.001)
    assert bytes(view) == record
    assert store.message_at(entry.phy_offset) is None
    with pytest.raises(StoreNotWritableError, match="the log is being cut"):
        feed(store, old)
    if is_done:
        del view
    mock_clock.jump(0.1 if is_done else 2.1)
    await settled(lambda: not store.flags.why_not_appendable)
    assert is_done or not bytes(view).strip(b"\0")
    check_is(store, old.below(cut))
    await store.close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_queue_that_is_left_without_messages_begins_anew(tmp_path, old, other, monkeypatch, is_killed):
    """Its first messages were gone, so blanks are all that is left of it; the master that counts now has other numbers."""
    whole, start = history(tmp_path / "whole"), FILE_SIZE
    late = History(start, whole.data[start:], [entry for entry in whole.entries if entry.phy_offset >= start])
    root = tmp_path / "store"
    store = open_slave(root)
    store.start_at(start)
    feed(store, late)
    assert store.queue("T0", 0).min_offset > 0
    if is_killed:
        trio.run(store.close)
        root = begin(root, start, monkeypatch)
        store = open_slave(root)
    else:
        trio.run(store.truncate, start, "a test")
    what = later(other, start)
    feed(store, what)
    units = {key[:2]: key[2].max_offset - key[2].min_offset for key in store.queues()}
    assert sum(units.values()) == len(what.entries)
    assert store.queue("T0", 0).unit(0).phy_offset == start
    store._release()


def cut(store: MessageStore, offset: int | None) -> None:
    """None: the log begins anew."""
    if offset is None:
        trio.run(store.reset, "a test")
    else:
        trio.run(store.truncate, offset, "a test")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in the last file", "in an early file", "at a file", "at the start", "anew"])
def test_a_kill_at_any_step_leaves_one_of_two_logs(tmp_path, old, slave_directory, monkeypatch, where):
    """Before the cut is decided the log is as it was; afterwards the next start finds it cut, and only that."""
    offset = {
        "in the last file": old.entries[-2].phy_offset,
        "in an early file": old.entries[5].phy_offset,
        "at a file": FILE_SIZE,
        "at the start": 0,
        "anew": None,
    }[where]
    after = old.below(offset or 0)
    step, ends = 0, []
    while True:
        root = shutil.copytree(slave_directory, tmp_path / str(step))
        store = open_slave(root)
        was_killed = killed_at(step, lambda store=store: cut(store, offset), monkeypatch, *STEPS)
        store._release()
        for _ in range(2):  # The second one finds nothing left to do.
            store = open_slave(root)
            ends.append(store.max_offset)
            check_is(store, old if store.max_offset == old.end else after)
            assert not (root / "twinlog" / NAME).exists()
            assert not list((root / "twinlog").glob("divergent/*.new"))
            store._release()
        assert ends[-1] == ends[-2]
        if ends[-1] < old.end:
            check_kept(root, old, offset or 0)
        shutil.rmtree(root)
        step += 1
        if not was_killed:
            break
    assert step > 15
    assert ends == sorted(ends, reverse=True)  # Once it is decided it stays so.
    assert {ends[0], ends[-1]} == {old.end, after.end}


@pytest.mark.parametrize("offset_of", [-2, 5])
def test_a_start_that_is_killed_while_it_finishes_a_cut_finishes_it_the_next_time(
    tmp_path, old, slave_directory, monkeypatch, offset_of
):
    offset = old.entries[offset_of].phy_offset
    begun = begin(shutil.copytree(slave_directory, tmp_path / "begun"), offset, monkeypatch)
    step = 0
    while True:
        root = shutil.copytree(begun, tmp_path / str(step))
        was_killed = killed_at(step, lambda root=root: open_slave(root), monkeypatch, *STEPS)
        store = open_slave(root)
        check_is(store, old.below(offset))
        check_kept(root, old, offset)
        store._release()
        step += 1
        if not was_killed:
            break
    assert step > 10


def begin(root: Path, offset: int, monkeypatch) -> Path:
    """A directory in which a cut is decided, and no more."""
    for step in range(100):
        trial = shutil.copytree(root, root.with_name(f"{root.name}{step}"))
        store = open_slave(trial)
        assert killed_at(step, lambda store=store: cut(store, offset), monkeypatch, *STEPS)
        store._release()
        if (trial / "twinlog" / NAME).exists():
            return trial
    raise AssertionError


def test_a_note_that_cannot_be_read_stops_the_start(tmp_path, old, slave_directory, monkeypatch):
    root = begin(shutil.copytree(slave_directory, tmp_path / "store"), old.entries[5].phy_offset, monkeypatch)
    note = root / "twinlog" / NAME
    raw = note.read_bytes()
    for damaged in (b"", raw[:20], raw[:-1], raw[:30] + b"x" + raw[31:]):
        note.write_bytes(damaged)
        with pytest.raises(StoreDirectoryError, match="says that the log was being cut, but not where"):
            open_slave(root)
    note.write_bytes(raw)
    store = open_slave(root)
    check_is(store, old.below(old.entries[5].phy_offset))
    store._release()


def test_what_somebody_wrote_since_is_not_cut(tmp_path, old, other, slave_directory, monkeypatch):
    """RocketMQ, say, that was started on the directory: it knows nothing of our note."""
    root = begin(shutil.copytree(slave_directory, tmp_path / "store"), old.entries[5].phy_offset, monkeypatch)
    last = sorted((root / "commitlog").iterdir())[-1]
    with last.open("r+b") as file:
        file.seek(old.end % FILE_SIZE)
        file.write(b"more")
    with pytest.raises(StoreDirectoryError, match="it was written to behind its old end"):
        open_slave(root)


@pytest.mark.parametrize("where", [5, "at a file", None])
def test_what_somebody_wrote_in_the_place_of_what_was_cut_is_not_cut(
    tmp_path, old, other, slave_directory, monkeypatch, where
):
    """All was cut but for the note of it; then RocketMQ ran for a while, and wrote less than was cut."""
    offset = old.entries[where].phy_offset if where == 5 else FILE_SIZE if where else None
    root = begin(shutil.copytree(slave_directory, tmp_path / "store"), offset, monkeypatch)
    note = (root / "twinlog" / NAME).read_bytes()
    store = open_slave(root)
    store._release()
    at = offset or 0
    path = root / "commitlog" / f"{at - at % FILE_SIZE:020d}"
    with path.open("r+b" if path.exists() else "wb") as file:
        os.ftruncate(file.fileno(), FILE_SIZE)
        os.pwrite(file.fileno(), other.data[:500], at % FILE_SIZE)
    (root / "twinlog" / NAME).write_bytes(note)
    with pytest.raises(StoreDirectoryError, match=f"other bytes were written at {at} since"):
        open_slave(root)
    assert path.read_bytes()[at % FILE_SIZE :][:500] == other.data[:500]


async def test_a_log_that_begins_anew_is_another_masters(tmp_path, old, other, slave_directory):
    """It may even begin later than it did."""
    for start in (0, 3 * FILE_SIZE):
        root = shutil.copytree(slave_directory, tmp_path / str(start))
        store = open_slave(root)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await store.reset("another master")
            check_is(store, old.below(0))
            assert store.commit_log.next_queue_offsets == dict.fromkeys(store.commit_log.next_queue_offsets, 0)
            check_kept(root, old, 0)
            store.start_at(start)
            what = later(other, start)
            feed(store, what)
            assert (store.min_offset, store.max_offset) == (start, what.end)
            await settled(
                lambda store=store, what=what: store.index.is_caught_up and store.index.phy_offset == what.end
            )
            while await store.digest.advance():
                pass
            assert (store.digest.digests.start, store.digest.digests.end) == (start, what.end // 65536 * 65536 or start)
            nursery.cancel_scope.cancel()
        await store.close()
        store = open_slave(root)
        assert (store.min_offset, store.max_offset) == (start, what.end)
        units = sum(queue.max_offset - queue.min_offset for _, _, queue in store.queues())
        assert units == len(what.entries)
        store._release()


def later(what: History, start: int) -> History:
    """The same messages in a log that begins elsewhere."""
    data = bytearray(what.data)
    for entry in what.entries:
        data[entry.phy_offset + 28 : entry.phy_offset + 36] = (start + entry.phy_offset).to_bytes(8)
    return History(start, bytes(data), [entry._replace(phy_offset=start + entry.phy_offset) for entry in what.entries])


async def test_all_who_follow_the_log_follow_its_cuts(tmp_path, nursery):
    """Scrub, digests, index, flushers and readers run while the log is cut again and again, and grows again as another one."""
    rng = random.Random(7)
    old, other = (history(tmp_path / str(seed), seed=seed, count=300) for seed in (0, 5))
    root = tmp_path / "store"
    store = open_slave(root, scrub_bytes_per_second=1 << 30)
    store.digest.old_bytes_per_second = 1 << 30

    async def again_and_again(work):
        while not is_over:
            await work()
            await trio.sleep(0.001)

    async def read():
        for topic, queue_id, queue in store.queues():
            found = store.get_message(topic, queue_id, rng.randrange(1 + queue.max_offset), 5, None)
            for view in found.buffers:
                assert bytes(view[:4]).strip(b"\0")
        await store.flusher.flush()
        await store._parts.queue_flusher.flush(thorough=rng.random() < 0.2)

    is_over, what = False, old
    await nursery.start(store.run)
    async with trio.open_nursery() as followers:
        for work in (store.scrub.scrub, store.digest.advance, read):
            followers.start_soon(again_and_again, work)
        for _ in range(12):
            feed(store, what.below(rng.choice(what.boundaries[2:])) if what.end > store.max_offset else what)
            await trio.sleep(rng.choice([0, 0.01, 0.05]))
            held = [offset for offset in what.boundaries if offset <= store.max_offset]
            if rng.random() < 0.5:
                await store.truncate(rng.choice(held), "a test")
            else:
                await store.truncate(0, "another history")
                what = old if what is other else other
        feed(store, what)
        is_over = True
    await store.scrub.scrub()
    while await store.digest.advance():
        pass
    await settled(lambda: store.index.is_caught_up and store.index.phy_offset == what.end)
    blocks = list(store.digest.digests.blocks(0, what.end))
    assert len(blocks) > 3
    assert [block.digest for block in blocks] == [digest(what.data[block.start : block.end]) for block in blocks]
    assert (store.damaged.total, store.statistics().in_doubt_bytes, store.statistics().wrong_units) == (0, 0, 0)
    check_is(store, what)
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await store.close()
    options = DirectoryOptions(log_file_size=FILE_SIZE, index_slots=100)
    with StoreDirectory.open(root, options) as directory:
        assert verify(directory).findings == ()


@pytest.mark.parametrize("version", golden.VERSIONS)
async def test_a_slave_of_the_real_broker_is_cut(tmp_path, version):
    """What it left, as it lies: then queues and index are those that are made anew from what is left of its log."""
    captured = golden.unpack(version, "slave", tmp_path)
    with StoreDirectory.open(captured) as directory:
        starts = [message.phy_offset for message in dump(directory.log, Selection())]
    for offset in (starts[1], starts[len(starts) // 2], golden.FILE_SIZE, starts[-1]):
        root = shutil.copytree(captured, tmp_path / f"cut{offset}")
        store = MessageStore(golden.config(root, broker_role=BrokerRole.SLAVE))
        store.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await store.truncate(offset, "a test")
            assert store.max_offset == offset
            await settled(
                lambda store=store, offset=offset: store.index.is_caught_up and store.index.phy_offset == offset
            )
            nursery.cancel_scope.cancel()
        await store.close()
        queues, index = content(root / "consumequeue"), list(content(root / "index").values())
        rebuild(root, DirectoryOptions(index_slots=100), queues=True, index=True)
        assert content(root / "consumequeue") == queues
        assert list(content(root / "index").values()) == index

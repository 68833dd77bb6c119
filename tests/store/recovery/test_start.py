"""Starts from a recovery point, and from none; queues that are lost or damaged, which are made anew from the log."""

import errno
import shutil
from pathlib import Path

import attrs
import pytest
import trio

from tests.store import golden
from tests.store.crashes import BODY, FILE_SIZE, crash, put
from tests.store.message_stores import make, opened
from tests.store.records import put_message, record_size
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import decode_message
from twinlog.store.recovery.point import PointRecord
from twinlog.store.recovery.side_files import SideFiles

SIZE = record_size(put_message(body=BODY))  # Twelve of them in a file.
BLANK = UNIT.pack(0, 0x7FFFFFFF, 0)


def bodies(store):
    """What consumers get: the numbers of each queue's messages, by queue offset."""
    found = {}
    for topic, queue_id, queue in store.queues():
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get_message(topic, queue_id, offset, 1, None)
            for view in result.buffers:
                message = decode_message(bytes(view))
                assert message.queue_id == queue_id
                found[queue_id, message.queue_offset] = int(message.body[:8])
            assert result.next_offset > offset
            offset = result.next_offset
    return found


def expected(numbers):
    return {(number % 3, number // 3): number for number in numbers}


@pytest.fixture(params=["stopped", "crashed", "point long ago"])
def left(request, tmp_path):
    """A directory with 150 messages, after a clean stop, or a crash soon or long after the last recovery point."""
    store = opened(tmp_path)
    put(store, range(30 if request.param == "point long ago" else 100))
    if request.param == "stopped":
        put(store, range(100, 150))
        trio.run(store.close)
        return tmp_path

    async def flush():
        await store._parts.queue_flusher.flush(thorough=True)

    trio.run(flush)
    put(store, range(30 if request.param == "point long ago" else 100, 150))
    crash(store)
    return tmp_path


def queue_dir(root, queue_id=0):
    return root / "consumequeue" / "T1" / str(queue_id)


def last_rebuilt(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if "were rebuilt" in line]


def test_starts_where_the_point_is(left):
    point = SideFiles(left / "twinlog").load_point()
    before = golden.queue_files(left)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    assert golden.queue_files(left) == before
    assert store._parts.points.offset == point.offset
    assert point.offset in (
        30 * SIZE + 2 * (FILE_SIZE - 12 * SIZE),
        100 * SIZE + 8 * (FILE_SIZE - 12 * SIZE),
        store.max_offset,
    )
    crash(store)


def lose_directory(root):
    shutil.rmtree(queue_dir(root))


def lose_topic(root):
    shutil.rmtree(queue_dir(root).parent)


def lose_everything(root):
    shutil.rmtree(root / "consumequeue")


def lose_first_files(root):
    for path in sorted(queue_dir(root).iterdir())[:-1]:
        path.unlink()


def lose_last_file(root):
    sorted(queue_dir(root).iterdir())[-1].unlink()


def lose_middle_file(root):
    sorted(queue_dir(root).iterdir())[2].unlink()


def shorten_file(root):
    path = sorted(queue_dir(root).iterdir())[1]
    path.write_bytes(path.read_bytes()[:100])


def lengthen_file(root):
    path = sorted(queue_dir(root).iterdir())[1]
    path.write_bytes(path.read_bytes() + bytes(7))


def empty_file(root):
    sorted(queue_dir(root).iterdir())[1].write_bytes(b"")


def stray_file(root):
    (queue_dir(root) / f"{13:020d}").write_bytes(b"x" * 200)


def zero_units(root, at=40, count=1):
    path = sorted(queue_dir(root).iterdir())[1]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(20 * count))


def zero_file(root):
    zero_units(root, 0, 10)


def garbage_unit(root):
    path = sorted(queue_dir(root).iterdir())[1]
    with path.open("r+b") as file:
        file.seek(60)
        file.write(b"\x12\x34" * 10)


def zero_the_end(root):
    for path in sorted(queue_dir(root).iterdir())[1:]:
        path.write_bytes(bytes(200))


def point_beyond(root):
    path = sorted(queue_dir(root).iterdir())[-1]
    content = path.read_bytes()
    units = content.rstrip(b"\0")
    used = -(-len(units) // 20) * 20
    path.write_bytes((content[: used - 20] + UNIT.pack(1 << 40, 100, 0)).ljust(200, b"\0"))


def swap_queues(root):
    """Each directory has the other's files: all of their units lead to messages, but of another queue."""
    queue_dir(root, 0).rename(root / "x")
    queue_dir(root, 1).rename(queue_dir(root, 0))
    (root / "x").rename(queue_dir(root, 1))


DAMAGES = [
    lose_directory, lose_topic, lose_everything, lose_first_files, lose_last_file, lose_middle_file, shorten_file, lengthen_file,
    empty_file, stray_file, zero_units, zero_file, garbage_unit, zero_the_end, point_beyond, swap_queues,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_and_damaged_queues_are_made_anew(left, damage):
    """Byte for byte, whatever became of them, and what follows is not disturbed."""
    before = golden.queue_files(left)
    damage(left)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    assert golden.queue_files(left) == before
    assert SideFiles(left / "twinlog").load_rebuild() == set()
    put(store, range(150, 170))
    crash(store)
    store = opened(left)
    assert bodies(store) == expected(range(170))
    trio.run(store.close)


@pytest.mark.parametrize("left", ["stopped"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGES)
def test_without_our_side_files_too_when_it_can_be_seen(left, damage):
    """RocketMQ wrote last: a queue that is gone, or ends early, shows where messages follow that lie behind the gap."""
    shutil.rmtree(left / "twinlog")
    before = golden.queue_files(left)
    damage(left)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    assert golden.queue_files(left) == before
    crash(store)


def test_files_made_anew_have_the_time_of_their_last_message(tmp_path):
    """RocketMQ 4.9 looks for messages by time in the first file that was written late enough."""
    store = make(tmp_path)
    now = [1_700_000_000_000]
    store.hooks.now_ms = lambda: now[0]
    store.load()
    for number in range(75):
        now[0] += 1000
        put(store, [number])
    trio.run(store.close)
    lose_everything(tmp_path)
    trio.run(opened(tmp_path).close)
    times = [path.stat().st_mtime_ns // 1_000_000 - 1_700_000_000_000 for path in sorted(queue_dir(tmp_path).iterdir())]
    assert times == [28_000, 58_000, 73_000]


def test_only_the_damaged_queue_is_made_anew(left, capsys):
    first = sorted(queue_dir(left).iterdir())[0]
    first.write_bytes(first.read_bytes()[:60].ljust(200, b"\0"))
    crash(opened(left))
    (line,) = last_rebuilt(capsys)
    assert "queues=1" in line
    assert "T1/0: " in line
    crash(opened(left))
    assert last_rebuilt(capsys) == []


def test_first_files_that_retention_removed_are_not_missed(left, capsys):
    for number in range(5):  # Of the log: 60 messages, 20 of each queue.
        (left / "commitlog" / f"{number * FILE_SIZE:020}").unlink()
    for path in sorted(queue_dir(left).iterdir())[:2]:
        path.unlink()
    store = opened(left)
    assert (store.queue("T1", 0).min_offset, store.queue("T1", 0).max_offset) == (20, 50)
    assert last_rebuilt(capsys) == []
    assert bodies(store) == expected(range(60, 150))
    crash(store)


@pytest.mark.parametrize("gone", [1, 5])
def test_a_queue_whose_first_messages_are_gone_begins_behind_blanks(left, gone):
    for number in range(gone):
        (left / "commitlog" / f"{number * FILE_SIZE:020}").unlink()
    lose_directory(left)
    store = opened(left)
    first = gone * 4
    queue = store.queue("T1", 0)
    assert (queue.min_offset, queue.max_offset) == (first, 50)
    assert queue.files.files[0].start == first // 10 * 200
    assert queue.files.files[0].read(0, 200).startswith(BLANK * (first % 10))
    assert bodies(store) == expected(range(gone * 12, 150))
    crash(store)


def test_numbers_go_on_when_all_messages_of_a_lost_queue_are_gone(tmp_path):
    """RocketMQ starts at 0 again, and consumers miss what comes."""
    store = opened(tmp_path)
    store.put([put_message("Old", b"x") for _ in range(37)])
    put(store, range(40))
    trio.run(store.close)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    shutil.rmtree(tmp_path / "consumequeue" / "Old")
    store = opened(tmp_path)
    queue = store.queue("Old", 0)
    assert (queue.min_offset, queue.max_offset) == (37, 37)
    assert store.put([put_message("Old", b"y")])[0].queue_offset == 37
    trio.run(store.close)


def test_a_rebuild_that_was_interrupted_is_done_again(left, monkeypatch):
    """The point is gone by then, and what there is of the queue looks well."""
    before = golden.queue_files(left)
    lose_directory(left)
    monkeypatch.setattr("twinlog.store.recovery.queues.QueueRecovery.finish", lambda _self, _end: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        opened(left)
    monkeypatch.undo()
    SideFiles(left / "twinlog").drop_point()
    for path in sorted(queue_dir(left).iterdir())[2:]:
        path.unlink()
    store = opened(left)
    assert golden.queue_files(left) == before
    crash(store)


@pytest.mark.parametrize(
    "change", ["last record", "no last record", "log file size", "behind the end", "before the start"]
)
def test_a_point_that_does_not_fit_the_log_is_not_believed(left, change):
    side = SideFiles(left / "twinlog")
    point = side.load_point()
    changes = {
        "last record": {"last": point.last._replace(digest=point.last.digest ^ 1)},
        "no last record": {"last": PointRecord()},
        "log file size": {"log_file_size": FILE_SIZE * 2},
        "behind the end": {"offset": 1 << 40},
        "before the start": {"offset": -1},
    }[change]
    side.save_point(attrs.evolve(point, queues=(), **changes))
    store = opened(left)
    assert bodies(store) == expected(range(150))
    crash(store)


def test_a_garbled_point_is_not_believed(left):
    path = left / "twinlog" / "recovery-point"
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    crash(store)


@pytest.mark.parametrize("name", ["twinlog/recovery-point", "twinlog/digest", "checkpoint"])
def test_a_start_does_without_what_the_disk_does_not_read(left, monkeypatch, name):
    def read_bytes(path, read=Path.read_bytes):
        if path == left / name:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    trio.run(opened(left).close)
    assert (left / name).exists()
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    crash(store)
    store = opened(left)
    assert bodies(store) == expected(range(150))
    trio.run(store.close)


def test_records_behind_the_point_of_a_clean_stop_are_found(left):
    """RocketMQ went on with the log after us, and stopped cleanly; our point is from before."""
    side = SideFiles(left / "twinlog")
    store = opened(left)
    trio.run(store.close)
    old = (left / "twinlog" / "recovery-point").read_bytes()
    store = opened(left)
    put(store, range(150, 200))
    trio.run(store.close)
    (left / "twinlog" / "recovery-point").write_bytes(old)
    lost = queue_dir(left, 2)
    shutil.rmtree(lost)
    store = opened(left)
    assert bodies(store) == expected(range(200))
    assert side.load_point() is not None
    crash(store)


@pytest.mark.parametrize("later", [0, 20])
def test_a_record_that_rocketmq_5_left_out_is_dispatched(tmp_path, later):
    """5.3.3 does not dispatch, after a clean stop, a record that begins where the queues end; later ones it does."""
    store = opened(tmp_path)
    put(store, range(10))
    store.put([put_message("Left", b"out")])  # Its queue exists, the unit does not.
    store._reput.pending.clear()
    put(store, range(10, 10 + later))
    trio.run(store.close)
    shutil.rmtree(tmp_path / "twinlog")
    store = opened(tmp_path)
    assert store.queue("Left", 0).max_offset == 1
    assert decode_message(store.get_message("Left", 0, 0, 1, None).buffers[0]).body == b"out"
    trio.run(store.close)


def test_all_files_of_another_size_are_a_matter_of_configuration(left):
    shutil.rmtree(left / "twinlog")
    tree = golden.queue_files(left)
    with pytest.raises(StoreDirectoryError, match="mappedFileSizeConsumeQueue is 400"):
        opened(left, mapped_file_size_consume_queue=400)
    assert golden.queue_files(left) == tree
    crash(opened(left))


def test_strangers_are_left_alone(left, capsys):
    (queue_dir(left) / "note.txt").write_text("hello")
    (queue_dir(left) / "dir").mkdir()
    (left / "consumequeue" / "readme").write_text("hello")
    (left / "consumequeue" / "T1" / "x7").mkdir()
    (left / "consumequeue" / "T1" / "00").mkdir()
    (left / "commitlog" / "note.txt").write_text("hello")
    store = opened(left)
    assert bodies(store) == expected(range(150))
    assert capsys.readouterr().out.count("foreign entry") == 6
    assert (queue_dir(left) / "note.txt").exists()
    crash(store)


def test_a_file_missing_in_the_log_changes_nothing(left):
    (left / "commitlog" / f"{2 * FILE_SIZE:020}").rename(left / "aside")
    before = golden.queue_files(left), golden.log_files(left / "commitlog")
    with pytest.raises(StoreDirectoryError, match="A file before it is missing"):
        opened(left)
    assert (golden.queue_files(left), golden.log_files(left / "commitlog")) == before
    (left / "aside").rename(left / "commitlog" / f"{2 * FILE_SIZE:020}")
    store = opened(left)
    assert bodies(store) == expected(range(150))
    crash(store)


async def test_a_point_is_noted_after_so_much_of_the_log(tmp_path, autojump_clock, nursery):
    store = make(tmp_path, recovery_point_bytes=50_000, flush_consume_queue_thorough_interval_ms=1 << 40)
    store.load()
    side = SideFiles(tmp_path / "twinlog")

    async def noted(offset):
        """The clock runs ahead of the threads that write."""
        while (point := side.load_point()) is None or point.offset < offset:
            await trio.sleep(0.1)
        return point

    await nursery.start(store.run)
    await trio.sleep(60)
    assert side.load_point() is None
    put(store, range(12))
    offset = store.max_offset
    point = await noted(offset)
    assert (point.offset, store.flushed_offset) == (offset, offset)
    assert {(state.queue_id, state.max_offset) for state in point.queues} == {(0, 4), (1, 4), (2, 4)}
    put(store, range(12, 14))
    await trio.sleep(60)
    assert side.load_point().offset == offset
    put(store, range(14, 24))
    assert (await noted(store.max_offset)).offset == store.max_offset
    nursery.cancel_scope.cancel()


def test_no_point_while_units_wait_for_the_disk(tmp_path):
    store = opened(tmp_path)
    put(store, range(3))
    store.queue("T1", 0)._staged.append(bytes(20))
    assert store._parts.points.take(store.max_offset) is None
    store.queue("T1", 0)._staged.clear()
    assert store._parts.points.take(store.max_offset) is not None
    crash(store)


def test_no_point_that_nothing_ties_to_its_log(tmp_path):
    store = opened(tmp_path)
    assert store._parts.points.take(0) is not None  # An empty log.
    put(store, range(3))
    store._parts.points.truncated(0)
    assert store._parts.points.take(store.max_offset) is None
    put(store, [3])
    assert store._parts.points.take(store.max_offset).last.phy_offset == 3 * SIZE
    crash(store)


def test_a_cut_log_takes_the_point_with_it(left):
    store = opened(left)
    side = SideFiles(left / "twinlog")
    store._parts.points.truncated(store._parts.points.offset)
    assert side.load_point() is not None
    store._parts.points.truncated(store._parts.points.offset - 1)
    assert side.load_point() is None
    crash(store)

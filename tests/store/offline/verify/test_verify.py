"""The checker of a whole store directory."""

import errno
import os
import random
import shutil
from functools import partial
from pathlib import Path
from struct import Struct

import attrs
import pytest
import trio

from tests.helpers import open_store
from tests.store import golden
from tests.store.directories import times_and_names
from tests.store.records import put_message
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.file_series import FileReader
from twinlog.store.offline.finding import FindingKind, Severity
from twinlog.store.offline.verify.verify import VerifyReport, VerifyVerdict, verify
from twinlog.store.offline.walk import walk_log
from twinlog.store.queue.consume_queue_ext import EXT_ADDRESS_MIN, EXT_HEAD
from twinlog.store.queue.layout import BLANK, UNIT

I64 = Struct(">q")


def report(root: Path, **options) -> VerifyReport:
    with StoreDirectory.open(root, DirectoryOptions(**options)) as directory:
        return attrs.evolve(verify(directory), seconds=0)


def brief(found: VerifyReport) -> list[tuple]:
    """Kind, severity, queue offset and count of each finding."""
    return [(f.kind, f.severity, f.queue_offset, f.count) for f in found.findings]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def queue_file(root: Path, topic="TopicA", queue_id=0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / ("0" * 20)


def unit(root: Path, number: int, topic="TopicA", queue_id=0) -> tuple[int, int, int]:
    return UNIT.unpack_from(queue_file(root, topic, queue_id).read_bytes(), number * 20)


def log_place(root: Path, phy_offset: int) -> tuple[Path, int]:
    """The file that holds a byte of the captured logs, and its position there."""
    return (
        root / "commitlog" / f"{phy_offset // golden.FILE_SIZE * golden.FILE_SIZE:020d}",
        phy_offset % golden.FILE_SIZE,
    )


@pytest.fixture
def master(tmp_path):
    return golden.unpack("4.9.7", "master", tmp_path)


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_what_rocketmq_wrote_is_sound(version, name, tmp_path):
    """Every record, unit and index item fits, and no file was touched."""
    root = golden.unpack(version, name, tmp_path)
    before = times_and_names(root)
    found = report(root)
    assert found.findings == ()
    assert found.verdict is VerifyVerdict.SOUND
    assert found.records == found.units > 350
    assert found.index_items > 650
    assert times_and_names(root) == before


def test_processes_find_what_one_finds(master):
    """The parts of the log are put together in the same way."""
    phy_offset = unit(master, 7)[0]
    overwrite(*log_place(master, phy_offset + 20), I64.pack(3))
    overwrite(*log_place(master, unit(master, 20)[0] + 100), b"\xff" * 40)
    (master / "commitlog" / f"{golden.FILE_SIZE:020d}").unlink()
    with StoreDirectory.open(master) as directory:
        done = []
        found = verify(directory, processes=1, progress=lambda *args: done.append(args))
        again = verify(directory, processes=2)
    assert {FindingKind.DAMAGED_RECORD, FindingKind.MISSING_FILE, FindingKind.QUEUE_OFFSET} < {
        f.kind for f in found.findings
    }
    assert done[-1][0] == done[-1][1] == 2 * golden.FILE_SIZE
    assert sorted(map(repr, again.findings)) == sorted(map(repr, found.findings))


def test_the_log_may_begin_anywhere(master):
    """Units and index items of messages that are gone are no fault."""
    (master / "commitlog" / ("0" * 20)).unlink()
    found = report(master)
    assert found.findings == ()
    assert found.log_start == golden.FILE_SIZE


def test_a_damaged_record_is_named_and_what_was_lost_with_it(master):
    """The log goes on behind it."""
    phy_offset, size, _ = unit(master, 7)
    overwrite(*log_place(master, phy_offset), b"\0\0\0\0")
    found = report(master)
    damage, *others = found.findings
    assert (damage.kind, damage.phy_offset) == (FindingKind.DAMAGED_RECORD, phy_offset)
    assert [(f.kind, f.topic, f.queue_id, f.queue_offset) for f in others] == [
        (FindingKind.UNIT_DANGLING, "TopicA", 0, 7)
    ]
    assert (found.verdict, found.damaged_bytes) == (VerifyVerdict.DAMAGED, size)


@pytest.mark.parametrize(
    ("position", "data", "expected"),
    [
        (20, I64.pack(999), [(FindingKind.QUEUE_OFFSET, Severity.ERROR, 7, 1)]),
        (12, b"\0\0\0\1", None),
        (56, I64.pack(1), [(FindingKind.STORE_TIME, Severity.WARNING, None, 1)]),
    ],
    ids=["queueOffset", "queueId", "storeTimestamp"],
)
def test_fields_that_no_checksum_covers(master, position, data, expected):
    """Another copy of them reveals damage; of the store time only its order does."""
    overwrite(*log_place(master, unit(master, 7)[0] + position), data)
    found = report(master)
    if expected is None:
        assert {(f.kind, f.queue_id) for f in found.findings} >= {(FindingKind.UNIT_DANGLING, 0)}
    else:
        assert [item for item in brief(found) if item[0] is not FindingKind.INDEX_ITEM] == expected


@pytest.mark.parametrize(
    ("position", "data", "message", "values"),
    [
        (0, I64.pack(1), "another place", "phy"),
        (8, b"\0\0\0\1", "another size", "size"),
        (12, I64.pack(77), "another tags code", "code"),
    ],
)
def test_a_wrong_unit_shows_what_should_be_there(master, position, data, message, values):
    """With file and position."""
    phy_offset, size, code = unit(master, 7)
    overwrite(queue_file(master), 7 * 20 + position, data)
    (found,) = report(master).findings
    assert (found.kind, found.queue_offset, found.position) == (FindingKind.UNIT_WRONG, 7, 7 * 20 + position)
    assert found.file == f"consumequeue/TopicA/0/{'0' * 20}"
    assert message in found.message
    assert found.expected == {"phy": phy_offset, "size": size, "code": code}[values]


def test_lost_units_and_queues_are_counted(master):
    """One line for each queue, however many messages."""
    overwrite(queue_file(master), 0, bytes(5 * 20))
    shutil.rmtree(master / "consumequeue" / "TopicA" / "1")
    shutil.rmtree(master / "consumequeue" / "TopicB")
    found = {(f.kind, f.topic, f.queue_id): f for f in report(master).findings}
    assert found[FindingKind.UNIT_MISSING, "TopicA", 0].count == 5
    assert found[FindingKind.UNIT_MISSING, "TopicA", 1].message == "messages of the log have no queue"
    assert found[FindingKind.UNIT_MISSING, "TopicA", 1].severity is Severity.ERROR
    topics = master / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("TopicB", "TopicX"))
    deleted = [f for f in report(master).findings if f.topic == "TopicB" and f.kind is FindingKind.UNIT_MISSING]
    assert {f.severity for f in deleted} == {Severity.WARNING}


def renumbered(record: bytes, phy_offset: int, queue_offset: int, store_timestamp: int) -> bytes:
    return (
        record[:20]
        + I64.pack(queue_offset)
        + I64.pack(phy_offset)
        + record[36:56]
        + I64.pack(store_timestamp)
        + record[64:]
    )


@pytest.fixture
def log_of_five(tmp_path):
    """A twinlog store without side files: five messages of queue T1-0; its root and the first record."""
    root = tmp_path / "five"
    store = open_store(root)
    store.hooks.now_ms = lambda: 1_000_000
    store.put([put_message(body=b"x" * 100)] * 5)
    store.dispatch_pending()
    record = bytes(store.message_at(0))
    trio.run(store.close)
    shutil.rmtree(root / "twinlog")
    return root, record


def test_a_topic_that_was_deleted_and_made_again(log_of_five):
    """Its numbering begins anew; the units of its first life are gone rightly."""
    root, record = log_of_five
    end = 5 * len(record)
    for number in range(2):
        at = end + number * len(record)
        overwrite(root / "commitlog" / ("0" * 20), at, renumbered(record, at, number, 1_000_001))
        overwrite(queue_file(root, "T1"), number * 20, UNIT.pack(at, len(record), 0))
    overwrite(queue_file(root, "T1"), 2 * 20, bytes(3 * 20))
    assert brief(report(root)) == [(FindingKind.QUEUE_OFFSET, Severity.WARNING, 0, 1)]
    overwrite(queue_file(root, "T1"), 0, UNIT.pack(0, len(record), 0))  # Now the number is just given twice.
    assert report(root).verdict is VerifyVerdict.DAMAGED


def test_a_gap_in_the_numbers_of_a_queue(log_of_five):
    """Messages that are neither in the log nor in the queue."""
    root, record = log_of_five
    at = 5 * len(record)
    overwrite(root / "commitlog" / ("0" * 20), at, renumbered(record, at, 8, 1_000_001))
    overwrite(queue_file(root, "T1"), 8 * 20, UNIT.pack(at, len(record), 0))
    assert brief(report(root)) == [(FindingKind.QUEUE_OFFSET, Severity.ERROR, 5, 3)]


def test_what_lies_behind_the_end_of_the_log_is_no_error(log_of_five):
    """RocketMQ leaves the bytes that it cut; they are older than the end, or their numbers are taken."""
    root, record = log_of_five
    end, size = 5 * len(record), len(record)
    log = root / "commitlog" / ("0" * 20)
    overwrite(log, end, b"torn" * (size // 4 + 1))
    for number, queue_offset, timestamp in ((6, 3, 1_000_001), (7, 4, 1_000_001)):
        overwrite(log, number * size, renumbered(record, number * size, queue_offset, timestamp))
    found = report(root)
    assert brief(found) == [(FindingKind.LOG_TAIL, Severity.WARNING, None, 1)]
    assert (found.log_end, found.records) == (end, 5)
    for number, queue_offset in ((6, 5), (7, 6)):  # The numbers go on, the time does not.
        overwrite(log, number * size, renumbered(record, number * size, queue_offset, 999_999))
    assert brief(report(root)) == [(FindingKind.LOG_TAIL, Severity.WARNING, None, 1)]
    for number, queue_offset in ((6, 6), (7, 7)):  # Both go on: it is damage, and message 5 is lost.
        overwrite(log, number * size, renumbered(record, number * size, queue_offset, 1_000_000))
        overwrite(queue_file(root, "T1"), queue_offset * 20, UNIT.pack(number * size, size, 0))
    overwrite(queue_file(root, "T1"), 5 * 20, UNIT.pack(end, size, 0))
    found = report(root)
    assert {(f.kind, f.severity, f.queue_offset) for f in found.findings} == {
        (FindingKind.DAMAGED_RECORD, Severity.ERROR, None),
        (FindingKind.UNIT_DANGLING, Severity.ERROR, 5),
    }
    assert found.damaged_bytes == size


def test_a_record_that_a_crash_tore_is_none(tmp_path):
    """As in recovery: only its zero last sector shows it."""
    store = open_store(tmp_path)
    store.put([put_message(properties=b"a\x01" + b"b" * 2000)] * 2)
    store.dispatch_pending()
    end = store.max_offset
    trio.run(store.close)
    assert report(tmp_path).verdict is VerifyVerdict.SOUND
    overwrite(tmp_path / "commitlog" / ("0" * 20), end - end % 512, bytes(end % 512))
    (tmp_path / "abort").touch()
    assert report(tmp_path).records == 1


def test_one_message_in_several_queues(tmp_path):
    """Property INNER_MULTI_DISPATCH names the others, where the broker is configured to fill them."""
    names = b"INNER_MULTI_DISPATCH\x01%LMQ%a,other\x02INNER_MULTI_QUEUE_OFFSET\x010,1\x02"
    store = open_store(tmp_path)
    store.put([put_message(queue_id=2), put_message(queue_id=2, properties=names)])
    store.dispatch_pending()
    raw = store.queue("T1", 2).read(1, 1)
    trio.run(store.close)
    assert report(tmp_path).verdict is VerifyVerdict.SOUND
    lite, other = tmp_path / "consumequeue" / "%LMQ%a" / "0", tmp_path / "consumequeue" / "other" / "2"
    for directory, units in ((lite, raw), (other, BLANK + raw)):
        directory.mkdir(parents=True)
        size = queue_file(tmp_path, "T1", 2).stat().st_size
        (directory / ("0" * 20)).write_bytes(units.ljust(size, b"\0"))
    assert report(tmp_path).findings == ()
    overwrite(lite / ("0" * 20), 12, I64.pack(9))
    assert brief(report(tmp_path)) == [(FindingKind.UNIT_WRONG, Severity.ERROR, 0, 1)]


def test_units_whose_tags_code_is_in_an_ext_unit(log_of_five):
    """The address leads to the real one."""
    root, _ = log_of_five
    ext = root / "consumequeue_ext" / "T1" / "0"
    ext.mkdir(parents=True)
    units = [EXT_HEAD.pack(EXT_HEAD.size + 3, 0, 1_000_000, 3) + b"map" for _ in range(5)]
    (ext / ("0" * 20)).write_bytes(b"".join(units).ljust(4096, b"\0"))
    for number in range(5):
        address = number * len(units[0]) + EXT_ADDRESS_MIN
        overwrite(queue_file(root, "T1"), number * 20 + 12, I64.pack(address))
    assert report(root).findings == ()
    overwrite(ext / ("0" * 20), len(units[0]) + 2, I64.pack(7))
    assert brief(report(root)) == [(FindingKind.UNIT_WRONG, Severity.ERROR, 1, 1)]


async def test_a_store_that_is_written_to_gives_no_false_alarm(tmp_path):
    """The end moves while it is looked for, and the queues follow the log a little later."""
    root = tmp_path / "store"
    sizes = {"max_hash_slot_num": 100, "max_index_num": 4000}
    store = MessageStore(golden.config(root, **sizes))
    store.load()
    enough = False

    async def produce(task_status=trio.TASK_STATUS_IGNORED):
        while not enough:
            store.put([put_message(f"T{n % 3}", bytes(500), properties=b"UNIQ_KEY\x01%d" % n) for n in range(20)])
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(0.002)

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await nursery.start(produce)
        for number in range(2):
            found = await trio.to_thread.run_sync(report, root)
            assert found.findings == ()
            assert found.records
            copy = tmp_path / f"copy{number}"
            without = shutil.ignore_patterns("lock")  # To close it would end the lock of this process.
            await trio.to_thread.run_sync(partial(shutil.copytree, root, copy, ignore=without))
            found = await trio.to_thread.run_sync(report, copy)
            assert (found.errors, found.damaged_bytes) == (0, 0), found.findings
        enough = True
        nursery.cancel_scope.cancel()
    await store.close()
    assert (await trio.to_thread.run_sync(report, root)).verdict is VerifyVerdict.SOUND


async def test_units_that_a_running_store_writes_late_are_waited_for(tmp_path):
    """To so many queues they are written every second."""
    root, many = tmp_path / "store", 2_000
    store = MessageStore(golden.config(root))
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for late in (0, many):  # The first round tells how many queues there are.
            store.put([put_message(queue_id=number) for number in range(many)])
            while store.dispatched_offset < store.max_offset or store._queues.late_count > late:
                await trio.sleep(0.01)
        assert store._queues.late_count == many
        found = await trio.to_thread.run_sync(report, root)
        assert found.findings == ()
        assert found.records == 2 * many
        nursery.cancel_scope.cancel()
    await store.close()


def test_a_log_that_lost_its_end_is_an_error_after_a_clean_stop_only(master):
    """After a crash queues may be ahead of the log; the next start repairs that."""
    with StoreDirectory.open(master) as directory:
        entries = [entry for window in walk_log(directory.log) for entry in window.entries]
    path, position = log_place(master, entries[-5].phy_offset)
    overwrite(path, position, bytes(golden.FILE_SIZE - position))
    found = report(master)
    assert found.verdict is VerifyVerdict.DAMAGED
    assert "the log lost its tail" in " ".join(f.message for f in found.findings)
    (master / "abort").touch()
    assert report(master).verdict is VerifyVerdict.WARNINGS


def test_a_queue_may_begin_with_blanks(master):
    """As RocketMQ fills one that it rebuilds; later a blank is none."""
    path = queue_file(master)
    (master / "commitlog" / ("0" * 20)).unlink()
    raw = path.read_bytes()
    count = sum(UNIT.unpack_from(raw, at)[0] < golden.FILE_SIZE and any(raw[at : at + 20]) for at in range(0, 2000, 20))
    assert count > 5
    overwrite(path, 0, BLANK * count)
    assert report(master).findings == ()
    overwrite(path, 0, raw[:20])
    assert {f.kind for f in report(master).findings} == {FindingKind.UNIT_WRONG}


def test_units_behind_the_queues_end_are_found(master):
    """A broker takes them for messages."""
    path = queue_file(master)
    used = len(path.read_bytes().rstrip(b"\0"))
    overwrite(path, -(-used // 20) * 20, UNIT.pack(*unit(master, 3)))
    assert brief(report(master)) == [(FindingKind.UNIT_DANGLING, Severity.ERROR, -(-used // 20), 1)]


def test_another_table_of_delays_is_learnt_or_told(master):
    """Every delayed message is due as much later or earlier."""
    found = report(master, message_delay_level="2s 9s")
    assert found.findings == ()
    path = queue_file(master, "SCHEDULE_TOPIC_XXXX", 0)
    overwrite(path, 12, I64.pack(unit(master, 0, "SCHEDULE_TOPIC_XXXX")[2] + 1))
    assert {f.kind for f in report(master).findings} == {FindingKind.UNIT_WRONG}


@pytest.mark.parametrize(("slots", "items"), [(100, 400), (37, 90), (500, 100)])
async def test_index_with_any_counts_is_read(tmp_path, slots, items, autojump_clock):
    """No file has them: they follow from the items, or are configured."""
    store = MessageStore(golden.config(tmp_path, max_hash_slot_num=slots, max_index_num=items))
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.put([put_message(properties=b"KEYS\x01a b%d" % n) for n in range(120)])
        while store.index.phy_offset < store.max_offset:
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    await store.close()
    found = report(tmp_path)
    assert (found.verdict, found.index_items) == (VerifyVerdict.SOUND, 240)
    assert report(tmp_path, index_slots=slots) == found


def test_config_files_that_cannot_be_read_or_be_true(master):
    """A broken one is an error where the .bak does not help, an offset behind the end a warning."""
    config = master / "config"
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text("{")
    (config / "subscriptionGroup.json").write_text("")
    offsets = config / "consumerOffset.json"
    offsets.write_text('{"offsetTable":{"TopicA@g":{0:1,1:100000\n}}}')
    found = {(f.file, f.severity) for f in report(master).findings}
    assert found == {
        ("config/topics.json", Severity.ERROR),
        ("config/topics.json.bak", Severity.WARNING),
        ("config/subscriptionGroup.json", Severity.WARNING),
        ("config/consumerOffset.json", Severity.WARNING),
    }


def test_checkpoint_that_is_ahead_of_the_log(master):
    """It would let recovery begin too late."""
    overwrite(master / "checkpoint", 0, I64.pack(1 << 50))
    (found,) = report(master).findings
    assert (found.kind, found.severity, found.position) == (FindingKind.CHECKPOINT, Severity.WARNING, 0)
    os.truncate(master / "checkpoint", 0)
    assert [f.kind for f in report(master).findings] == [FindingKind.CHECKPOINT]


def test_a_file_that_the_disk_does_not_give(master):
    """The others are checked all the same."""

    class BadDisk(FileReader):
        def fd(self, path: Path) -> int:
            if path.name == f"{golden.FILE_SIZE:020d}":
                raise OSError(errno.EIO, "Input/output error")
            return super().fd(path)

    with StoreDirectory.open(master) as directory:
        directory.log.reader = BadDisk()
        found = verify(directory)
        directory.log.reader.close()
    assert found.damaged_bytes == golden.FILE_SIZE
    assert (FindingKind.UNREADABLE_FILE, f"commitlog/{golden.FILE_SIZE:020d}") in {
        (f.kind, f.file) for f in found.findings
    }
    assert found.log_end > 2 * golden.FILE_SIZE


def test_much_damage_makes_a_short_report(master):
    """All of it is counted; of each kind the first ones are listed."""
    for path in (master / "index").iterdir():
        overwrite(path, 440, random.Random(1).randbytes(8000))
    (master / "commitlog" / f"{golden.FILE_SIZE:020d}").unlink()
    found = report(master)
    assert found.errors > 1000
    assert len(found.findings) < 500
    assert found.findings_omitted == found.errors + found.warnings - sum(f.count for f in found.findings) > 500
    assert {FindingKind.INDEX_ITEM, FindingKind.UNIT_DANGLING, FindingKind.DAMAGED_RECORD} < {
        f.kind for f in found.findings
    }

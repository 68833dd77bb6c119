"""The real RocketMQ's consume queues, rebuilt from its commit log alone: the same bytes as its own."""

import shutil
from struct import Struct

import pytest

from tests.store import golden
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

UNIT = Struct(">qiq")
BLANK = UNIT.pack(0, 0x7FFFFFFF, 0)


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    """Each captured directory."""
    return golden.unpack(*request.param, tmp_path)


@pytest.fixture(params=golden.VERSIONS)
def version(request):
    return request.param


def log_alone(root):
    """Leave nothing but the commit log: no queues, no checkpoint, no sign of how the broker ended."""
    for path in root.iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def loaded(root, **options):
    store = MessageStore(golden.config(root, **options))
    store.load()
    return store


def units(content):
    """The units of a queue file, as bytes, up to the first that is none."""
    size = next((at for at in range(0, len(content), UNIT.size) if UNIT.unpack_from(content, at)[1] <= 0), len(content))
    return content[:size]


def queue_units(root):
    """Queue directory to the bytes of all its units."""
    queues = {}
    for path, content in golden.queue_files(root).items():
        queue = path.rpartition("/")[0]
        queues[queue] = queues.get(queue, b"") + units(content)
    return queues


def test_the_log_alone_makes_each_queue_file_byte_for_byte(captured):
    """Delivery times of the schedule topic, half and op messages, retries: all units come from the log."""
    expected = golden.queue_files(captured)
    log_alone(captured)
    loaded(captured)
    assert golden.queue_files(captured) == expected


def test_after_a_crash_half_written_queues_become_byte_for_byte(captured):
    """Queue files of which only some pages reached the disk are made whole, whatever the pages hold."""
    expected = golden.queue_files(captured)
    queues = captured / "consumequeue"
    for number, path in enumerate(sorted(path for path in queues.rglob("*") if path.is_file())):
        content = bytearray(path.read_bytes())
        middle = len(units(content)) // 2 // UNIT.size * UNIT.size
        if number % 3 == 0:
            content[middle:] = bytes(len(content) - middle)  # Its end is missing.
        elif number % 3 == 1:
            content[:middle] = bytes(middle)  # Its start is.
        else:
            content[middle : middle + UNIT.size] = b"\x5a" * UNIT.size  # Something else is there.
        path.write_bytes(content)
    (captured / "abort").touch()
    (captured / "checkpoint").unlink()
    loaded(captured)
    assert golden.queue_files(captured) == expected


@pytest.mark.parametrize("file_size", [20, 60, 1_000, 6_000_000])
def test_units_do_not_depend_on_the_size_of_queue_files(version, file_size, tmp_path):
    """A unit has the same place in the endless queue; files only cut it."""
    root = golden.unpack(version, "master", tmp_path)
    expected = queue_units(root)
    log_alone(root)
    loaded(root, mapped_file_size_consume_queue=file_size)
    assert queue_units(root) == expected
    sizes = {path.stat().st_size for path in (root / "consumequeue").rglob("*") if path.is_file()}
    assert sizes == {file_size}


def test_rebuilt_queues_keep_their_numbers_behind_blanks(captured):
    """With the log's first file gone, a queue starts with blank units where its first messages were."""
    expected = golden.queue_files(captured)
    (captured / "commitlog" / f"{0:020}").unlink()
    shutil.rmtree(captured / "consumequeue")
    store = loaded(captured)
    assert store.min_offset == golden.FILE_SIZE
    rebuilt = golden.queue_files(captured)
    shortened = 0
    for path, content in expected.items():
        all_units = list(UNIT.iter_unpack(units(content)))
        kept = [unit for unit in all_units if unit[0] >= golden.FILE_SIZE]
        blanks = len(all_units) - len(kept)
        if not kept:
            assert path not in rebuilt
            continue
        shortened += bool(blanks)
        raw = BLANK * blanks + b"".join(UNIT.pack(*unit) for unit in kept)
        assert rebuilt[path] == raw.ljust(golden.CONSUME_QUEUE_FILE_SIZE, b"\0")
        topic, number, _ = path.split("/")
        queue = store.queue(topic, int(number))
        assert (queue.min_offset, queue.max_offset) == (blanks, blanks + len(kept))
    assert shortened > 3


def test_each_answered_message_is_where_its_producer_was_told(version, tmp_path):
    """What the client noted when the messages were sent: queue, queue offset and place in the log."""
    root = golden.unpack(version, "master", tmp_path)
    log_alone(root)
    store = loaded(root)
    found = 0
    for sent in golden.truth(version)["messages"]:
        if sent["kind"] == "normal":
            answers = [(sent["offset_msg_id"], sent["queue_offset"])]
        elif sent["kind"] == "batch_result":
            ids = sent["offset_msg_id"].split(",")
            answers = [(offset_msg_id, sent["queue_offset"] + i) for i, offset_msg_id in enumerate(ids)]
        else:
            continue
        for offset_msg_id, queue_offset in answers:
            phy_offset = int(offset_msg_id[-16:], 16)
            message = decode_message(store.message_at(phy_offset))
            assert (message.queue_id, message.queue_offset) == (sent["queue_id"], queue_offset)
            unit = store.queue(message.topic, message.queue_id).unit(queue_offset)
            assert (unit.phy_offset, unit.size) == (phy_offset, message.size)
            found += 1
    assert found > 280

"""Properties straight from the log, for filters."""

import attrs
import pytest

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.read.get_message import stored_properties
from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, Message, encode_message, host_bytes

PROPERTIES = b"a\x015\x02TAGS\x01x"
MESSAGE = Message(topic="topic-a", queue_id=1, body=b"hello", properties_raw=PROPERTIES)
FILE_SIZE = 1 << 20
V6 = host_bytes("[2001:db8::1]:10911")


@pytest.fixture
def log(tmp_path):
    log = CommitLog(MappedFileQueue(tmp_path, FILE_SIZE, "mappedFileSizeCommitLog"))
    log.files.create(0)
    yield log
    log.close()


def append(log, record):
    """Where it begins."""
    offset = log.max_offset
    log.files.files[-1].append(record)
    return offset


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"body": b""},
        {"body": b"x" * 16_200},
        {"body": b"x" * 200_000},
        {"properties_raw": b""},
        {"properties_raw": b"p\x01" + b"v" * 32_000},
        {"topic": "t" * 127},
        {"topic": "t" * 300, "magic": MAGIC_V2},
        {"born_host": V6, "sys_flag": BORN_HOST_V6},
        {"store_host": V6, "sys_flag": STORE_HOST_V6},
        {"born_host": V6, "store_host": V6, "sys_flag": BORN_HOST_V6 | STORE_HOST_V6, "body": b"x" * 20_000},
    ],
)
def test_properties_of_every_kind_of_record(log, change):
    message = attrs.evolve(MESSAGE, **change)
    for _ in range(2):
        record = encode_message(message)
        assert stored_properties(log, append(log, record), len(record)) == message.properties_raw


@pytest.mark.parametrize("at", range(4, len(encode_message(MESSAGE)), 3))
def test_what_is_broken_has_none_or_others_but_never_raises(log, at):
    record = bytearray(encode_message(MESSAGE))
    record[at] ^= 0xFF
    assert isinstance(stored_properties(log, append(log, record), len(record)), bytes)


@pytest.mark.parametrize("size", [0, 50, 90, len(encode_message(MESSAGE)) - 1, FILE_SIZE])
def test_sizes_that_are_wrong(log, size):
    assert isinstance(stored_properties(log, append(log, encode_message(MESSAGE)), size), bytes)


def test_places_where_there_is_nothing(log):
    assert stored_properties(log, 5 * FILE_SIZE, 200) == b""
    assert stored_properties(log, 100, 200) == b""

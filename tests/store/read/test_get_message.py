"""Pulls: what a consumer gets, and where it goes on. The table of spec and source: DefaultMessageStore.getMessage."""

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.reading import Clock, fill, messages, offsets, open_store
from tests.store.records import HOST_V6, put_message, record_size
from twinlog.store.config import BrokerRole
from twinlog.store.queue.consume_queue_ext import ConsumeQueueExt
from twinlog.store.queue.layout import BLANK, UNIT
from twinlog.store.read.get_message import GetStatus
from twinlog.store.record.properties import tags_code


@pytest.fixture
def store(tmp_path):
    """25 messages in queue 0 of T1, whose first 3 are no longer in the log."""
    store = open_store(tmp_path)
    fill(store, 25)
    store.queue("T1", 0).min_offset = 3
    return store


@pytest.mark.parametrize(
    ("topic", "offset", "status", "next_offset"),
    [
        ("unknown", 7, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T1", -1, GetStatus.OFFSET_TOO_SMALL, 3),
        ("T1", 0, GetStatus.OFFSET_TOO_SMALL, 3),
        ("T1", 2, GetStatus.OFFSET_TOO_SMALL, 3),
        ("T1", 3, GetStatus.FOUND, 4),
        ("T1", 24, GetStatus.FOUND, 25),
        ("T1", 25, GetStatus.OFFSET_OVERFLOW_ONE, 25),
        ("T1", 26, GetStatus.OFFSET_OVERFLOW_BADLY, 25),
        ("T1", 1 << 60, GetStatus.OFFSET_OVERFLOW_BADLY, 25),
    ],
)
def test_status_and_next_offset(store, topic, offset, status, next_offset):
    result = store.get_message(topic, 0, offset, 1, None)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == ((3, 25) if topic == "T1" else (0, 0))
    assert result.message_count == len(result.buffers) == (status is GetStatus.FOUND)


@pytest.mark.parametrize(("check", "next_offset"), [(False, 99), (True, 25)])
def test_a_slave_does_not_correct_offsets(tmp_path, check, next_offset):
    """Its master may be ahead of it; with offsetCheckInSlave it does."""
    fill(open_store(tmp_path), 25)
    slave = open_store(tmp_path, broker_role=BrokerRole.SLAVE, offset_check_in_slave=check)
    result = slave.get_message("T1", 0, 99, 1, None)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, next_offset)
    assert slave.get_message("none", 0, 99, 1, None).next_offset == (0 if check else 99)


def test_units_whose_file_is_gone(store):
    """The queue's numbers say there is a message, but no file has its unit."""
    store.queue("T1", 0).files.files.pop(0).delete()
    result = store.get_message("T1", 0, 5, 8, None)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 10)


@pytest.mark.parametrize("count", [1, 4, 7, 32])
def test_a_pull_ends_with_the_file_of_the_queue(store, count):
    result = store.get_message("T1", 0, 3, count, None)
    assert offsets(result) == list(range(3, min(10, 3 + count)))
    assert result.next_offset == min(10, 3 + count)


@pytest.mark.parametrize("count", [0, -5])
def test_at_least_one_message_is_looked_for(store, count):
    """Whatever the client says: an offset must never jump over messages."""
    result = store.get_message("T1", 0, 3, count, None)
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [3], 4)


def test_neighbours_in_the_log_go_out_as_one_view(store):
    assert len(store.get_message("T1", 0, 3, 5, None).buffers) == 1


@given(st.lists(st.sampled_from(["T1", "T2"]), max_size=40), st.integers(0, 30), st.integers(1, 40))
@settings(max_examples=50)
def test_what_is_read_is_what_was_written(tmp_path_factory, topics, offset, count):
    store = open_store(tmp_path_factory.mktemp("s"), mapped_file_size_commit_log=4096)
    bodies = {"T1": [], "T2": []}
    for number, topic in enumerate(topics):
        body = b"%d" % number * 100
        bodies[topic].append(body)
        store.put([put_message(topic, body)])
    store.dispatch_pending()
    wanted = bodies["T1"][offset : min(offset + count, offset // 10 * 10 + 10)]
    result = store.get_message("T1", 0, offset, count, None)
    assert [message.body for message in messages(result)] == wanted[: result.message_count]
    assert result.message_count == min(len(wanted), 32)
    assert (result.status is GetStatus.FOUND) == bool(wanted)
    store._release()


LOSSES = st.sampled_from(["", "", "", "nothing", "beyond", "negative", "the first files"])


@given(
    st.lists(st.tuples(st.sampled_from(["T1", "T1", "T2"]), st.integers(0, 900)), min_size=5, max_size=40),
    st.integers(0, 12),
    st.integers(1, 40),
    st.sampled_from([None, None, 100, 70, 30]),
    st.integers(200, 4000),
    LOSSES,
)
@settings(max_examples=150)
def test_what_is_not_filtered_comes_as_with_a_filter_that_takes_all(
    tmp_path_factory, sent, offset, count, shown_percent, bytes_max, loss
):
    """The short way, for what lies in memory as it was written, against the one that looks at each message."""
    store = open_store(
        tmp_path_factory.mktemp("s"),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=2000,
        max_transfer_bytes_on_message_in_memory=bytes_max,
        max_transfer_count_on_message_in_memory=20,
    )
    for topic, size in sent:
        store.put([put_message(topic, bytes(size))])
    store.dispatch_pending()
    if loss and store.queue("T1", 0).max_offset:
        if loss == "the first files":
            del store.commit_log.files.files[: len(store.commit_log.files.files) // 2]
        else:
            unit = {"nothing": (0, 0x7FFFFFFF, 0), "beyond": (1 << 40, 100, 0), "negative": (0, -100, 0)}[loss]
            store.queue("T1", 0).files.files[0].write_at(offset * 20, UNIT.pack(*unit))
    if shown_percent is not None:
        store.hooks.dispatch_limit = lambda: store.max_offset * shown_percent // 100
    plain = store.get_message("T1", 0, offset, count, None)
    careful = store.get_message("T1", 0, offset, count, None, lambda properties: True)
    assert plain == careful
    store._release()


def test_limits_in_memory(tmp_path):
    store = open_store(
        tmp_path,
        mapped_file_size_consume_queue=2000,
        max_transfer_bytes_on_message_in_memory=1000,
        max_transfer_count_on_message_in_memory=5,
    )
    fill(store, 20)
    assert offsets(store.get_message("T1", 0, 0, 32, None)) == [0, 1, 2, 3, 4]
    fill(store, 20, topic="T2", body=bytes(400))
    assert offsets(store.get_message("T2", 0, 0, 32, None)) == [0, 1]
    fill(store, 2, topic="T3", body=bytes(5000))
    assert offsets(store.get_message("T3", 0, 0, 32, None)) == [0]  # One always goes.


def test_limits_for_what_is_not_in_memory(tmp_path):
    """Nothing counts as memory here: a slave may serve it better, and less goes out at a time."""
    store = open_store(tmp_path, access_message_in_memory_max_ratio=0, max_transfer_count_on_message_in_disk=3)
    fill(store, 20)
    result = store.get_message("T1", 0, 0, 32, None)
    assert (offsets(result), result.next_offset, result.suggest_slave) == ([0, 1, 2], 3, True)


def test_tags_are_matched_by_their_hash(tmp_path):
    store = open_store(tmp_path, mapped_file_size_consume_queue=20_000)
    fill(store, 30, tags=["a", "b", "长标签"])
    result = store.get_message("T1", 0, 1, 5, frozenset({tags_code("a"), tags_code("长标签")}))
    assert (offsets(result), result.next_offset) == ([2, 3, 5, 6, 8], 9)
    result = store.get_message("T1", 0, 0, 32, frozenset({tags_code("none")}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)


def test_a_filter_looks_at_800_units(tmp_path):
    store = open_store(tmp_path, mapped_file_size_consume_queue=20_000, mapped_file_size_commit_log=1 << 20)
    store.put([put_message(properties=b"TAGS\x01a")] * 1000)
    store.put([put_message(properties=b"TAGS\x01b")])
    store.dispatch_pending()
    wanted = frozenset({tags_code("b")})
    result = store.get_message("T1", 0, 0, 32, wanted)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
    assert store.get_message("T1", 0, 800, 32, wanted).next_offset == 1000
    assert offsets(store.get_message("T1", 0, 1000, 32, wanted)) == [1000]


def test_negative_hashes_match(tmp_path):
    store = open_store(tmp_path)
    assert tags_code("polygenelubricants") < 0
    fill(store, 2, tags=["polygenelubricants", "a"])
    assert offsets(store.get_message("T1", 0, 0, 9, frozenset({tags_code("polygenelubricants")}))) == [0]


def test_records_that_are_gone_are_passed_over(tmp_path):
    """Their log file was deleted, the queue does not know yet: on to the first record of the next file."""
    store = open_store(tmp_path, mapped_file_size_commit_log=4096)
    fill(store, 9, body=bytes(1200))
    store.commit_log.files.files.pop(0).delete()
    result = store.get_message("T1", 0, 0, 2, None)
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [3, 4], 5)
    result = store.get_message("T1", 0, 0, 8, None)
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [3, 4, 5, 6, 7, 8], 9)
    fill(store, 9, body=bytes(1200))
    del store.commit_log.files.files[:5]
    result = store.get_message("T1", 0, 0, 2, None)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 10)  # The queue's first file.


@pytest.mark.parametrize("tags", [None, frozenset({tags_code("a")}), frozenset({tags_code("none")})])
def test_nothing_is_shown_from_the_limit_on(store, tags):
    """Consumers see the queue end before the first message that is not confirmed; its numbers stay what they are."""
    limit = store.queue("T1", 0).unit(7).phy_offset
    fill(store, 1, tags=["a"])
    store.hooks.dispatch_limit = lambda: limit
    result = store.get_message("T1", 0, 3, 32, None)
    assert (offsets(result), result.next_offset, result.max_offset) == ([3, 4, 5, 6], 7, 26)
    for offset in (7, 20, 25):
        result = store.get_message("T1", 0, offset, 32, tags)
        assert (result.status, result.next_offset, result.message_count) == (GetStatus.OFFSET_OVERFLOW_ONE, offset, 0)
    assert store.get_message("T1", 0, 26, 32, tags).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.get_message("T1", 0, 27, 32, tags).status is GetStatus.OFFSET_OVERFLOW_BADLY
    limit = store.max_offset
    assert offsets(store.get_message("T1", 0, 7, 2, None)) == [7, 8]


@pytest.mark.parametrize(
    ("kept", "wanted", "expected"),
    [
        ({0: "a", 1: "b", 2: "a"}, "a", [0, 2]),
        ({0: "a", 2: "b"}, "a", [0, 1]),  # What cannot be read there matches, as with RocketMQ.
        ({}, "c", [0, 1, 2]),
        ({0: "a", 1: "b", 2: "a"}, "c", []),
    ],
)
def test_tags_codes_that_lie_in_the_queues_extension(tmp_path, kept, wanted, expected):
    store = open_store(tmp_path)
    fill(store, 3)
    queue, extension = store.queue("T1", 0), tmp_path / "ext"
    extension.mkdir()
    units = [
        struct.pack(">hqqh", 20, tags_code(kept[n]) if n in kept else 0, 5, 0 if n in kept else 99) for n in range(3)
    ]
    (extension / f"{0:020d}").write_bytes(b"".join(units) + b"\xff\xff")
    queue.ext = ConsumeQueueExt.open(extension)
    for number in range(3):
        unit = queue.unit(number)
        queue.files.files[0].write_at(20 * number, UNIT.pack(unit.phy_offset, unit.size, 20 * number - (1 << 63)))
    for _ in range(2):
        result = store.get_message("T1", 0, 0, 32, frozenset({tags_code(wanted)}))
        assert (offsets(result), result.next_offset) == (expected, 3)


@pytest.mark.parametrize(
    ("size", "on_disk", "count_max", "expected"),
    [
        (100, False, 32, 32),
        (100, False, 7, 7),
        (100, False, 100, 32),
        (100, True, 32, 8),
        (100, True, 5, 5),
        (50_000, False, 32, 5),  # 262,144 bytes
        (50_000, True, 32, 1),  # 65,536 bytes
        (21_000, True, 32, 3),
        (300_000, False, 32, 1),  # One of any size always goes.
        (300_000, True, 32, 1),
    ],
)
def test_when_an_answer_is_full(tmp_path, size, on_disk, count_max, expected):
    """RocketMQ's defaults: 32 messages or 256 KiB of what is in memory, 8 or 64 KiB of what is not."""
    options = {"access_message_in_memory_max_ratio": 0} if on_disk else {}
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 22, mapped_file_size_consume_queue=20_000, **options)
    body = bytes(size - record_size(put_message(body=b"", properties=b"")))
    fill(store, 40 if size < 1000 else 8, body=body)
    result = store.get_message("T1", 0, 0, count_max, None)
    assert offsets(result) == list(range(expected))
    assert (result.next_offset, result.size) == (expected, expected * size)
    assert result.suggest_slave == on_disk


@pytest.mark.parametrize("asked", [1, 3, 7, 8, 12])
def test_messages_that_are_gone_do_not_shorten_an_answer(tmp_path, asked):
    """As with RocketMQ, the units behind them are looked at in the same call, to the end of the queue's file."""
    store = open_store(tmp_path, mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400)
    fill(store, 18, body=bytes(1200))
    store.commit_log.files.files.pop(0).delete()
    result = store.get_message("T1", 0, 1, asked, None)
    assert offsets(result) == list(range(3, 3 + asked))
    assert result.next_offset == 3 + asked


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, 0),
        (1000, 0),
        (1004, 0),
        (1005, 0),
        (1006, 1),
        (1010, 1),
        (1014, 1),
        (1016, 2),
        (1085, 8),
        (1090, 9),
        (1 << 50, 9),
    ],
)
def test_offset_by_time_is_the_nearest_message(tmp_path, timestamp, expected):
    """Of two equally near ones the earlier."""
    clock = Clock()
    store = open_store(tmp_path, now_ms=clock)
    for number in range(10):
        clock.ms = 1000 + 10 * number
        fill(store, 1, **({"born_host": HOST_V6} if number % 3 else {}))
    assert store.offset_by_time("T1", 0, timestamp) == expected
    assert store.store_timestamp("T1", 0, expected) == 1000 + 10 * expected


def test_offset_by_time_among_equals_and_in_what_is_left(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, now_ms=clock)
    assert store.offset_by_time("T1", 0, 5) == 0
    for clock.ms in (1000, 2000, 3000):
        fill(store, 4)
    assert store.offset_by_time("T1", 0, 2000) in range(4, 8)
    store.queue("T1", 0).min_offset = 5
    assert store.offset_by_time("T1", 0, 0) == 5
    assert store.offset_by_time("T1", 0, 1 << 50) == 11
    assert store.store_timestamp("T1", 0, 4) == -1
    assert store.store_timestamp("T1", 0, 12) == -1


def test_offset_by_time_passes_over_what_cannot_be_read(tmp_path):
    """A message whose record or unit is broken has no time; its neighbours have."""
    clock = Clock()
    store = open_store(tmp_path, now_ms=clock, mapped_file_size_consume_queue=2000)
    for number in range(40):
        clock.ms = 1000 + 10 * number
        fill(store, 1)
    queue = store.queue("T1", 0)
    for number in (19, 20, 21):
        queue.files.files[0].write_at(20 * number, UNIT.pack(7, 300, 0))
    for number in (*range(18), *range(23, 40)):
        assert store.offset_by_time("T1", 0, 1000 + 10 * number) == number
    assert store.offset_by_time("T1", 0, 1200) in range(18, 23)
    assert store.store_timestamp("T1", 0, 20) == -1


def test_where_the_disk_reads_nothing_a_message_has_no_time(tmp_path):
    """As for a bad sector: a look at the map of the file would end the process."""
    store = open_store(tmp_path, mapped_file_size_consume_queue=2000)
    fill(store, 4)
    file = store.commit_log.files.files[0]
    assert file.view(0, 1) is not None
    reader, writer = os.pipe()  # Cannot be read at a position.
    kept = os.dup(file.fd)
    os.dup2(reader, file.fd)
    assert store.store_timestamp("T1", 0, 2) == -1
    assert store.offset_by_time("T1", 0, 1000) in range(4)
    os.dup2(kept, file.fd)
    for fd in (reader, writer, kept):
        os.close(fd)
    assert store.store_timestamp("T1", 0, 2) == 1000


def test_offset_by_time_passes_over_blanks_when_the_logs_first_files_are_gone(tmp_path):
    """A blank leads to the log's first byte, but is not older than the messages before it."""
    clock = Clock()
    store = open_store(tmp_path, now_ms=clock, mapped_file_size_consume_queue=2000)
    for number in range(40):
        clock.ms = 1000 + 10 * number
        fill(store, 1, body=bytes(5000))
    store.commit_log.files.drop_first().close()
    queue = store.queue("T1", 0)
    queue.correct_min_offset(store.min_offset)
    low = queue.min_offset
    blank = (low + 39) // 2  # Where the search begins.
    queue.files.files[0].write_at(20 * blank, BLANK)
    for number in (*range(low, blank), *range(blank + 2, 40)):
        assert store.offset_by_time("T1", 0, 1000 + 10 * number) == number

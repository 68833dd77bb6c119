"""Messages that were not scrubbed are checked before they are served: no broken one is served, and no sound one is withheld."""

import errno
import os
import struct

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store import golden
from tests.store.read_checks import COUNT, FILE_SIZE, QUEUES, TOPICS, fill, opened
from tests.store.records import HOST_V4, put_message
from twinlog.store.config import StoreConfig
from twinlog.store.integrity.damage import KnownDamage
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue_ext import ConsumeQueueExt
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import UNIT
from twinlog.store.read.get_message import GetStatus
from twinlog.store.record.message import MAGIC_V2, Message, body_crc, decode_message, encode_message
from twinlog.store.record.properties import tags_code
from twinlog.store.record.scan import DispatchEntry, scan_records


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path)
    fill(store)
    yield store
    store._release()


def pull_all(store, topic, queue_id, tags_codes=None):
    """Every message that a consumer gets, pull by pull."""
    found, offset, end = [], 0, store.queue(topic, queue_id).max_offset
    while offset < end:
        result = store.get_message(topic, queue_id, offset, 32, tags_codes)
        assert result.next_offset > offset, "a consumer must never be stuck"
        assert (result.status is GetStatus.FOUND) == (result.message_count > 0)
        data, before = b"".join(result.buffers), len(found)
        while data:
            size = int.from_bytes(data[:4])
            found.append(bytes(data[:size]))
            data = data[size:]
        assert len(found) - before == result.message_count
        offset = result.next_offset
    return found


def everything(store):
    return {(topic, queue): pull_all(store, topic, queue) for topic in TOPICS for queue in range(QUEUES)}


@pytest.fixture(scope="module")
def unchecked(tmp_path_factory):
    """A store after a start, and what it holds."""
    root = tmp_path_factory.mktemp("read")
    store = opened(root)
    fill(store)
    trio.run(store.close)
    store = opened(root)
    yield store, everything(store)
    store._release()


class Flipped:
    """Changes one byte of a file for a while, unnoticed as after a start unless the test says otherwise."""

    def __init__(self, store, file, at, mask, *, after_start=True):
        self.store, self.fd, self.at, self.mask, self.after_start = store, file.fd, at, mask, after_start

    def __enter__(self):
        self.old = os.pread(self.fd, 1, self.at)
        os.pwrite(self.fd, bytes([self.old[0] ^ self.mask]), self.at)
        self.store.scrub.check.known = KnownDamage(type(self.store.damaged)())
        if self.after_start:
            self.store.scrub.check.distrust(queue for _, _, queue in self.store.queues())
        return self.store.scrub.check.known

    def __exit__(self, *_):
        os.pwrite(self.fd, self.old, self.at)


def test_what_is_sound_is_served(unchecked):
    store, expected = unchecked
    assert sum(map(len, expected.values())) == COUNT
    assert all(store.scrub.check.trusted_from[queue] == queue.max_offset for _, _, queue in store.queues())
    assert store.damaged.total == store.scrub.known.wrong_units == 0


def placed(record):
    """The bytes of a record that no check on read covers: what neither place, nor body, nor tags depend on."""
    message = decode_message(record)
    born_end = 48 + len(message.born_host)
    body_end = born_end + 8 + len(message.store_host) + 16 + len(message.body)
    tags_from = len(record) - len(message.properties_raw)
    return (
        *range(16, 20),
        *range(36, born_end + 8 + len(message.store_host) + 12),
        body_end,
        *range(tags_from, len(record)),
    )


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_broken_record_is_never_served(unchecked, data):
    """One byte of one record is another: that record stays out, all others go out as they are.

    Bytes that say nothing about the message's place and that no CRC covers cannot be judged without the digest.
    """
    store, expected = unchecked
    key = data.draw(st.sampled_from(sorted(expected)))
    record = data.draw(st.sampled_from(expected[key]))
    at = data.draw(st.integers(0, len(record) - 1))
    phy_offset = decode_message(record).phy_offset
    file = store.commit_log.files.file_at(phy_offset)
    with Flipped(store, file, phy_offset - file.start + at, data.draw(st.integers(1, 255))) as known:
        found = everything(store)
        at_it = bytes(store.commit_log.read(phy_offset, len(record)))
        for other, records in expected.items():
            without = [one for one in records if one != record]
            if other == key and at_it in found[other]:
                assert at in placed(record)
                assert found[other] == [at_it if one == record else one for one in records]
            else:
                assert found[other] == without if other == key else records
        if at_it not in found[key]:
            assert known.damaged.overlaps(phy_offset, phy_offset + 1) or known.wrong_units == 1
            assert store.message_at(phy_offset) is None or known.wrong_units


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_wrong_unit_never_leads_to_another_message(unchecked, data):
    """A place that is wrong loses its message to consumers; a wrong size or tags code does no harm."""
    store, expected = unchecked
    key = data.draw(st.sampled_from(sorted(expected)))
    number = data.draw(st.integers(0, len(expected[key]) - 1))
    at = data.draw(st.integers(0, 19))
    file = store.queue(*key).files.file_at(20 * number)
    with Flipped(store, file, 20 * number - file.start + at, data.draw(st.integers(1, 255))) as known:
        found = everything(store)
        for other, records in expected.items():
            lost = other == key and at < 8
            assert found[other] == [one for n, one in enumerate(records) if not lost or n != number]
        assert known.wrong_units == 1
        assert known.damaged.total == 0
        served = store.message_of(*key, number)
        assert (served is None) if at < 8 else (served == expected[key][number])


@pytest.mark.parametrize("mask", [1, 255])
def test_a_wrong_tags_code_hides_no_message_from_a_filter(unchecked, mask):
    store, expected = unchecked
    number = next(n for n, one in enumerate(expected["T0", 0]) if decode_message(one).properties["TAGS"] == "t4")
    file = store.queue("T0", 0).files.files[0]
    wanted = frozenset({tags_code("t4")})
    before = pull_all(store, "T0", 0, wanted)
    with Flipped(store, file, 20 * number + 19, mask):
        assert pull_all(store, "T0", 0, wanted) == before
        assert expected["T0", 0][number] in before


def test_each_finding_is_told_once(unchecked, capsys):
    store, expected = unchecked
    phy_offset = decode_message(expected["T0", 0][7]).phy_offset
    with Flipped(store, store.commit_log.files.files[0], phy_offset + 100, 1):
        for _ in range(3):
            assert len(pull_all(store, "T0", 0)) == len(expected["T0", 0]) - 1
    told = [line for line in capsys.readouterr().out.splitlines() if "damaged bytes" in line]
    assert len(told) == 1
    assert f"offset={phy_offset}" in told[0]
    assert "CRC" in told[0]


def test_a_sector_that_cannot_be_read_is_damage(unchecked, monkeypatch):
    """Through the map it would end the process."""
    store, expected = unchecked
    phy_offset = decode_message(expected["T0", 0][7]).phy_offset
    real = MappedFile.read

    def read(self, position, size):
        if self.size == FILE_SIZE and position <= phy_offset < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return real(self, position, size)

    monkeypatch.setattr(MappedFile, "read", read)
    store.scrub.check.known = KnownDamage()
    assert pull_all(store, "T0", 0) == [one for number, one in enumerate(expected["T0", 0]) if number != 7]
    assert store.message_at(phy_offset) is None
    assert list(store.scrub.known.damaged) == [(phy_offset, phy_offset + len(expected["T0", 0][7]))]


def test_what_was_written_since_the_start_is_not_looked_at(store):
    """No check: the price is one comparison for a pull. So a byte that changes under us goes out."""
    record = pull_all(store, "T0", 0)[3]
    file = store.commit_log.files.files[0]
    with Flipped(store, file, decode_message(record).phy_offset + 100, 1, after_start=False) as known:
        assert len(pull_all(store, "T0", 0)) == COUNT // 4
        assert known.damaged.total == 0


def test_a_pull_of_broken_messages_only_goes_on_behind_them(store):
    """The consumer is asked to pull again at once, behind the broken messages."""
    records = pull_all(store, "T0", 0)
    store.scrub.begin()
    for record in records:
        offset = decode_message(record).phy_offset + 130
        file = store.commit_log.files.file_at(offset)
        os.pwrite(file.fd, b"broken", offset - file.start)
    result = store.get_message("T0", 0, 0, 5, None)
    assert (result.status, result.message_count, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 0, 30)
    wanted = frozenset({tags_code("t0")})
    assert store.get_message("T0", 0, 3, 5, wanted).status is GetStatus.MESSAGE_WAS_REMOVING


def test_units_behind_the_log_or_below_zero(store):
    """They neither stop a consumer nor take other messages with them."""
    queue, expected = store.queue("T0", 0), pull_all(store, "T0", 0)
    store.scrub.begin()
    bad = {
        2: (1 << 40, 300),
        3: (store.max_offset - 10, 300),
        5: (-7, 300),
        6: (0, 0x7FFFFFFF),
        8: (50, -1),
        9: (0, 91),
    }
    for number, (phy_offset, size) in bad.items():
        os.pwrite(queue.files.files[0].fd, UNIT.pack(phy_offset, size, 0), 20 * number)
    assert pull_all(store, "T0", 0) == [one for number, one in enumerate(expected) if number not in bad]


def test_units_that_lead_into_a_message_that_holds_a_message(store):
    """The copy inside says another place, so it is none; nor is the record around it damaged."""
    inner = pull_all(store, "T0", 0)[0]
    result = store.put([put_message("T0", inner + inner)])[0]
    store.dispatch_pending()
    queue, expected = store.queue("T0", 0), pull_all(store, "T0", 0)
    store.scrub.begin()
    at = result.phy_offset + 88
    os.pwrite(queue.files.files[0].fd, UNIT.pack(at, len(inner), 0), 20 * 4)
    assert pull_all(store, "T0", 0) == [one for number, one in enumerate(expected) if number != 4]
    assert store.message_at(at) is None
    assert store.damaged.total == 0


def test_records_of_version_2_and_long_topics(tmp_path):
    """RocketMQ 5 writes them for retry topics with long names."""
    slave = opened(tmp_path, broker_role=StoreConfig().broker_role.SLAVE)
    topic, body = "%RETRY%" + "g" * 200, b"hello"
    message = Message(
        topic=topic,
        queue_id=0,
        body=body,
        properties_raw=b"TAGS\x01a",
        flag=0,
        sys_flag=0,
        queue_offset=0,
        phy_offset=0,
        born_timestamp=1,
        born_host=HOST_V4,
        store_timestamp=2,
        store_host=HOST_V4,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
        magic=MAGIC_V2,
    )
    record = encode_message(message)
    scan = scan_records(record, 0, FILE_SIZE, check_crc=True)
    slave.append_replicated(record, scan.entries)
    slave.dispatch_pending()
    slave.scrub.begin()
    assert pull_all(slave, topic, 0) == [record]
    assert slave.message_of(topic, 0, 0) == record
    slave._release()


def test_messages_that_were_handed_on_to_other_queues(store):
    """RocketMQ's multi dispatch: a unit in each listed queue leads to the one record."""
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x010,1"
    result = store.put([put_message("T0", properties=properties)])[0]
    store.dispatch_pending()
    for topic, number in (("%LMQ%a", 0), ("%LMQ%b", 1)):
        queue = store.queue(topic, 0)
        queue.files.create(0).append(
            UNIT.pack(0, 0x7FFFFFFF, 0) * number + UNIT.pack(result.phy_offset, result.size, 0)
        )
    store.scrub.begin()
    for topic, number in (("%LMQ%a", 0), ("%LMQ%b", 1)):
        found = store.get_message(topic, 0, number, 1, None)
        assert (found.status, found.message_count) == (GetStatus.FOUND, 1)
    assert store.scrub.known.wrong_units == 0
    os.pwrite(
        store.queue("%LMQ%a", 0).files.files[0].fd,
        UNIT.pack(0, 0x7FFFFFFF, 0) + UNIT.pack(result.phy_offset, result.size, 0),
        0,
    )
    store.queue("%LMQ%a", 0).files.files[0].wrote = 40
    store.scrub.begin()
    assert store.get_message("%LMQ%a", 0, 1, 1, None).message_count == 0


@pytest.mark.parametrize(("kept", "wrong"), [("t0", 0), ("t1", 1), (None, 0)])
def test_tags_codes_in_the_queues_extension(store, tmp_path, kept, wrong):
    """An address is right when the message's own hash is kept there, or nothing that can be read."""
    extension = tmp_path / "ext"
    extension.mkdir()
    unit = struct.pack(">hqqh", 20, tags_code(kept or ""), 5, 99 if kept is None else 0)
    (extension / f"{0:020d}").write_bytes(unit + b"\xff\xff")
    queue = store.queue("T0", 0)
    phy_offset, size, _ = queue.unit(0)
    queue.files.files[0].write_at(0, UNIT.pack(phy_offset, size, -(1 << 63)))
    queue.ext = ConsumeQueueExt.open(extension)
    store.scrub.begin()
    assert len(pull_all(store, "T0", 0)) == COUNT // 4
    assert store.scrub.known.wrong_units == wrong
    wanted = pull_all(store, "T0", 0, frozenset({tags_code("t0")}))
    assert decode_message(wanted[0]).queue_offset == 0


@pytest.mark.parametrize(("version", "name"), [(v, n) for v in golden.VERSIONS for n in golden.CLEAN])
def test_all_that_rocketmq_wrote_is_sound(tmp_path, version, name):
    """Each unit of each queue, whatever wrote it: delayed, transactional and batch messages, retries, IPv6."""
    store = MessageStore(golden.config(golden.unpack(version, name, tmp_path)))
    store.load()
    count = 0
    for _, _, queue in store.queues():
        for number in range(queue.min_offset, queue.max_offset):
            unit = queue.unit(number)
            assert store.scrub.check.unit(queue, number, *unit) == unit[1:]
            count += 1
    assert count > 100
    trio.run(store.scrub.scrub)
    assert (store.scrub.known.wrong_units, store.damaged.total) == (0, 0)
    assert set(store.scrub.check.trusted_from.values()) <= {0} | {queue.max_offset for _, _, queue in store.queues()}
    store._release()


def test_a_blank_hides_no_message_of_a_damaged_range(tmp_path):
    queues, at = ConsumeQueueTable(tmp_path / "queues", 2000), 3 << 30
    entries = [DispatchEntry("T", 0, n, at + 1_000 * n, 100, 0, 1, 0) for n in (0, 2, 3)]
    queues.put(entries)
    queue = queues.get("T", 0)
    assert queue.unit(1).is_blank
    check = ReadCheck(opened(tmp_path / "store").commit_log, KnownDamage())
    check.distrust_damaged(queues, at, at + 100)
    assert 1 <= check.trusted_from[queue] <= 2

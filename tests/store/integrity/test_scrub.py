"""The scrub: finds every byte that changed on the disk, says what is broken, and makes checks on read needless."""

import errno
import os
import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import put
from tests.store.records import HOST_V6, put_message
from twinlog.store.config import StoreConfig
from twinlog.store.integrity import throttled_scan
from twinlog.store.integrity.damage import KnownDamage
from twinlog.store.integrity.digest import DigestBlock, digest, floor_block
from twinlog.store.integrity.scrub import ScrubService
from twinlog.store.integrity.throttled_scan import ThrottledReader, find_flipped_bit
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import TRANSACTION_PREPARED, decode_message

FILE_SIZE = 100_000


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch):
    monkeypatch.setattr(throttled_scan, "SHARE", 1)


def opened(root, **options):
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 2000}
    store = MessageStore(StoreConfig(root=root, **{**sizes, "scrub_bytes_per_second": 1 << 40, **options}))
    store.load()
    return store


def fill(store, count, *, seed=1):
    """Messages of several queues and kinds."""
    rng = random.Random(seed)
    for number in range(count):
        store.put(
            [
                put_message(
                    f"T{number % 2}",
                    rng.randbytes(rng.randrange(2000)),
                    queue_id=number % 3,
                    properties=b"UNIQ_KEY\x01%d\x02TAGS\x01t%d" % (number, number % 5),
                    sys_flag=TRANSACTION_PREPARED if number % 17 == 5 else 0,
                    **({"born_host": HOST_V6} if number % 7 == 3 else {}),
                )
            ]
        )
    store.dispatch_pending()


async def follow(store):
    while await store.digest.advance():
        pass


def known(store):
    return store.scrub.known


def records(store):
    """Start and end of every record."""
    found, offset = [], store.min_offset
    while offset < store.max_offset:
        record = store.commit_log.read(offset, 8)
        size = int.from_bytes(record[:4])
        if int.from_bytes(record[4:8]) != 0xCBD43194:
            found.append((offset, offset + size))
        offset += size
    return found


class Bytes:
    """Changes bytes of the log on the disk, and puts them back."""

    def __init__(self, store):
        self.store, self.old = store, []

    def change(self, offset, value):
        file = self.store.commit_log.files.file_at(offset)
        old = os.pread(file.fd, len(value), offset - file.start)
        os.pwrite(file.fd, value, offset - file.start)
        self.old.append((offset, old))

    def flip(self, offset, mask):
        file = self.store.commit_log.files.file_at(offset)
        self.change(offset, bytes([os.pread(file.fd, 1, offset - file.start)[0] ^ mask]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for offset, old in reversed(self.old):
            file = self.store.commit_log.files.file_at(offset)
            os.pwrite(file.fd, old, offset - file.start)


@pytest.fixture(scope="module")
def scrubbed(tmp_path_factory):
    """A store with a digest up to its last whole block."""
    root = tmp_path_factory.mktemp("scrub")
    store = opened(root)
    fill(store, 300)
    trio.run(store.close)
    store = opened(root)
    trio.run(follow, store)
    yield store
    store._release()


def forget(store):
    """As after a start."""
    store.scrub.check.known = KnownDamage(type(store.damaged)())
    store.scrub.rounds = 0
    store.scrub.begin()


def test_a_sound_store_has_no_findings(scrubbed):
    forget(scrubbed)
    assert scrubbed.scrub.unscrubbed_bytes == scrubbed.max_offset
    assert all(scrubbed.scrub.check.trusted_from[queue] == queue.max_offset for _, _, queue in scrubbed.queues())
    trio.run(scrubbed.scrub.scrub)
    assert (known(scrubbed).damaged.total, known(scrubbed).in_doubt.total, known(scrubbed).wrong_units) == (0, 0, 0)
    assert scrubbed.scrub.scrubbed_bytes == scrubbed.max_offset
    assert (scrubbed.scrub.unscrubbed_bytes, scrubbed.scrub.scrubbed_from) == (0, 0)
    assert all(scrubbed.scrub.check.trusted_from[queue] == 0 for _, _, queue in scrubbed.queues())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_byte_that_changes_is_found(scrubbed, data):
    """Wherever it is: in a record, in its header, in the rest of a file behind a blank. What is broken is named."""
    forget(scrubbed)
    at = data.draw(st.integers(0, scrubbed.digest.digests.end - 1))
    mask = data.draw(st.one_of(st.sampled_from([1 << bit for bit in range(8)]), st.integers(1, 255)))
    record = next(((start, end) for start, end in records(scrubbed) if start <= at < end), None)
    with Bytes(scrubbed) as log:
        log.flip(at, mask)
        trio.run(scrubbed.scrub.scrub)
        found = known(scrubbed)
        assert found.damaged.overlaps(at, at + 1) or found.in_doubt.overlaps(at, at + 1)
        if mask.bit_count() == 1 and record is not None:
            start, end = record
            follows = any(end == other for other, _ in records(scrubbed))  # Else its size may be what broke.
            ends = {end} if follows else {end, start - start % FILE_SIZE + FILE_SIZE}
            ((found_start, found_end),) = found.damaged
            assert (found_start, found_end in ends) == (start, True)
        assert found.damaged.total <= 4096


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_bodies_are_checked_without_a_digest(scrubbed, data):
    forget(scrubbed)
    start, end = data.draw(st.sampled_from(records(scrubbed)))
    message = decode_message(scrubbed.commit_log.read(start, end - start))
    if not message.body:
        return
    whole, scrubbed.digest.digests = scrubbed.digest.digests, type(scrubbed.digest.digests)()
    at = end - len(message.properties_raw) - 5 - data.draw(st.integers(1, len(message.body)))
    try:
        with Bytes(scrubbed) as log:
            log.flip(at, data.draw(st.integers(1, 255)))
            trio.run(scrubbed.scrub.scrub)
            (found,) = known(scrubbed).damaged
            assert found in (
                (start, end),
                (start, -(-end // FILE_SIZE) * FILE_SIZE),
            )  # With the blank behind the last one.
    finally:
        scrubbed.digest.digests = whole


@pytest.fixture
def store(tmp_path):
    """300 messages, closed cleanly and opened again."""
    store = opened(tmp_path)
    fill(store, 300)
    trio.run(store.close)
    store = opened(tmp_path)
    yield store
    store._release()


async def test_several_bytes_of_a_header_are_in_doubt(store):
    """A digest shows that they changed, not which ones; the CRCs are right, so the messages are served."""
    await follow(store)
    start, _ = records(store)[40]
    with Bytes(store) as log:
        log.change(start + 40, b"\x99" * 8)  # The time of birth: nothing else would tell.
        await store.scrub.scrub()
    assert store.damaged.total == 0
    assert list(known(store).in_doubt) == [(floor_block(start), floor_block(start) + 65_536)]
    assert store.statistics().in_doubt_bytes == 65_536


async def test_a_flipped_bit_of_a_header_is_named_and_its_record_not_served(store, capsys):
    await follow(store)
    start, end = records(store)[40]
    with Bytes(store) as log:
        log.flip(start + 44, 0x10)
        await store.scrub.scrub()
        assert list(store.damaged) == [(start, end)]
        assert f"bit 4 of byte {start + 44} is flipped" in capsys.readouterr().out
        assert store.message_at(start) is None
        served = {message.phy_offset for message in everything(store)}
        assert served == {start for start, _ in records(store)} - {start} - half_messages(store)


def half_messages(store):
    found = (decode_message(store.commit_log.read(start, end - start)) for start, end in records(store))
    return {message.phy_offset for message in found if message.sys_flag & TRANSACTION_PREPARED}


def everything(store):
    """All messages that consumers of all queues get, one pull behind the other."""
    found = []
    for topic, queue_id, queue in store.queues():
        offset = 0
        while offset < queue.max_offset:
            result = store.get_message(topic, queue_id, offset, 32, None)
            assert result.next_offset > offset
            data = b"".join(result.buffers)
            while data:
                found.append(decode_message(data))
                data = data[found[-1].size :]
            offset = result.next_offset
    return found


async def test_what_was_found_stays_checked_on_read(store):
    """Messages behind the broken one are trusted, those before it and it itself are looked at for ever."""
    start, end = records(store)[150]
    message = decode_message(store.commit_log.read(start, end - start))
    queue = store.queue(message.topic, message.queue_id)
    with Bytes(store) as log:
        log.flip(start + 100, 1)
        await store.scrub.scrub()
    assert store.scrub.check.trusted_from[queue] == message.queue_offset + 1
    for _, _, other in store.queues():
        if other is not queue:
            assert store.scrub.check.trusted_from[other] == 0


async def test_damage_that_comes_later_is_found_by_a_later_round(store):
    await store.scrub.scrub()
    start, end = records(store)[150]
    message = decode_message(store.commit_log.read(start, end - start))
    queue = store.queue(message.topic, message.queue_id)
    with Bytes(store) as log:
        log.flip(start + 100, 1)
        await store.scrub.scrub()
        assert list(store.damaged) == [(start, end)]
        assert store.scrub.check.trusted_from[queue] == message.queue_offset + 1
        assert start not in {message.phy_offset for message in everything(store)}


@pytest.mark.parametrize("at", [7, 3, 11, 19])
async def test_wrong_units_are_found_and_put_right(store, at):
    """The scrub reads each record, and then its unit: one that leads elsewhere, or has another size or tags code."""
    queue = store.queue("T1", 1)
    file = queue.files.files[0]
    old = os.pread(file.fd, 2000, 0)
    file.flushed = file.wrote
    spoil_unit(queue, at)
    await store.scrub.scrub()
    assert (known(store).wrong_units, known(store).repaired_units, store.damaged.total) == (0, 1, 0)
    assert os.pread(file.fd, 2000, 0) == old
    assert file.flushed <= UNIT.size * 7  # It will be brought to the disk.
    got = {message.queue_offset for message in everything(store) if (message.topic, message.queue_id) == ("T1", 1)}
    assert set(range(queue.max_offset)) == got


def spoil_unit(queue, at):
    """One bit of the unit of message 7."""
    file = queue.files.files[0]
    (byte,) = os.pread(file.fd, 1, UNIT.size * 7 + at)
    os.pwrite(file.fd, bytes([byte ^ 4]), UNIT.size * 7 + at)


@pytest.mark.parametrize(("at", "served"), [(7, False), (3, False), (11, True), (19, True)])
@pytest.mark.parametrize("why", ["no digest", "in doubt", "other damage", "a disk that refuses"])
async def test_a_wrong_unit_that_nothing_proves_stays(store, monkeypatch, at, served, why):
    """Without a digest it may be the record that changed: no CRC covers its number, nor its tags."""
    queue = store.queue("T1", 1)
    unit = queue.unit(7)
    if why == "no digest":
        store.digest.digests.cut(floor_block(unit.phy_offset))
    elif why == "in doubt":
        known(store).in_doubt.add(unit.phy_offset, unit.phy_offset + 1)
    elif why == "other damage":
        other = store.queue("T0", 0).unit(3)
        known(store).record(other.phy_offset, other.phy_offset + other.size, "planted")
        monkeypatch.setattr(ScrubService, "_is_sound", lambda self, start, end: False)
    else:
        monkeypatch.setattr(type(queue), "repair_unit", refuse)
    spoil_unit(queue, at)
    spoiled = queue.unit(7)
    await store.scrub.scrub()
    assert (known(store).wrong_units, known(store).repaired_units) == (1, 0)
    assert queue.unit(7) == spoiled
    assert store.scrub.check.trusted_from[queue] == 8
    got = {message.queue_offset for message in everything(store) if (message.topic, message.queue_id) == ("T1", 1)}
    assert (7 in got) == served


def refuse(queue, queue_offset, unit):
    raise OSError(errno.EROFS, "Read-only file system")


async def test_a_unit_that_somebody_put_right_is_not_counted_any_more(store, monkeypatch):
    queue = store.queue("T1", 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(queue), "repair_unit", refuse)
        spoil_unit(queue, 7)
        await store.scrub.scrub()
    assert known(store).wrong_units == 1
    spoil_unit(queue, 7)
    await store.scrub.scrub()
    assert (known(store).wrong_units, known(store).repaired_units) == (0, 0)


@pytest.mark.parametrize("file_size", [FILE_SIZE, 1 << 20])
async def test_the_unit_of_a_topic_made_anew_leads_to_the_later_message(tmp_path, file_size):
    """Two records of one file, or of two, have the number of the wrong unit; the first one was deleted with its topic."""
    store = opened(tmp_path, mapped_file_size_commit_log=file_size)
    store.put([put_message("T1", queue_id=1)])
    fill(store, 200)
    queue = store.queue("T1", 1)
    deleted = queue.unit(0)
    queue.files.clear()
    del store._queues._queues["T1", 1]
    store.commit_log.next_queue_offsets[("T1", 1)] = 0
    results = [store.put([put_message("T1", queue_id=1)])[0] for _ in range(3)]
    fill(store, 200, seed=2)  # So that a digest covers them.
    await follow(store)
    store.scrub.begin()
    anew = store.queue("T1", 1)
    os.pwrite(anew.files.files[0].fd, UNIT.pack(deleted.phy_offset + 1, 100, 0), 0)
    await store.scrub.scrub()
    assert anew.unit(0)[:2] == (results[0].phy_offset, results[0].size)
    assert (known(store).wrong_units, known(store).repaired_units) == (0, 1)
    store._release()


async def test_what_comes_while_it_scrubs_needs_no_check(store):
    fill(store, 50, seed=2)
    await store.scrub.scrub()
    assert known(store).wrong_units == store.damaged.total == 0
    assert set(store.scrub.check.trusted_from.values()) == {0}


async def test_doubtful_digests_of_a_crash_are_made_anew(store):
    """The records are sound, so it is the digest that is of other bytes."""
    await follow(store)
    digests = store.digest.digests
    store.digest.doubtful_from, store.digest.doubtful_end = 2 * 65_536, digests.end
    start = 3 * 65_536
    digests.replace(DigestBlock(start, start + 65_536, b"of other bytes.."))
    await store.scrub.scrub()
    assert known(store).in_doubt.total == 0
    file_bytes = LogRange.open(store.commit_log, start, start + 65_536)
    with file_bytes:
        assert next(digests.blocks(start, start + 1)).digest == digest(file_bytes.read(start, 65_536))
    digests.replace(DigestBlock(0, 65_536, b"of other bytes.."))  # Durable long before the crash.
    await store.scrub.scrub()
    assert list(known(store).in_doubt) == [(0, 65_536)]


async def test_a_suspect_of_the_start_is_looked_at(tmp_path):
    store = opened(tmp_path)
    fill(store, 300)
    at = floor_block(store.max_offset)
    start, end = next((start, end) for start, end in records(store) if start >= at)
    await store.close()
    path = sorted((tmp_path / "commitlog").iterdir())[-1]
    data = bytearray(path.read_bytes())
    data[(start + 44) % FILE_SIZE] ^= 1
    path.write_bytes(data)
    store = opened(tmp_path)
    await store.scrub.scrub()
    assert list(store.damaged) == [(start, end)]
    store._release()


async def test_units_of_a_topic_made_anew_are_right(store):
    """Records of the topic that was deleted have the numbers of the new one's messages, but their units are gone."""
    queue = store.queue("T1", 1)
    old = queue.max_offset
    queue.files.clear()
    del store._queues._queues["T1", 1]
    store.commit_log.next_queue_offsets[("T1", 1)] = 0
    for _ in range(old // 2):
        store.put([put_message("T1", queue_id=1)])
    store.dispatch_pending()
    await store.scrub.scrub()
    assert known(store).wrong_units == 0


async def test_sectors_that_cannot_be_read_are_damage(store, monkeypatch):
    """The messages before and behind are served; what the sector holds is not touched again."""
    real = LogRange.read

    def read(self, offset, size):
        if offset < 53_000 and offset + size > 52_000:
            raise OSError(errno.EIO, "Input/output error")
        return real(self, offset, size)

    await follow(store)
    monkeypatch.setattr(LogRange, "read", read)
    await store.scrub.scrub()
    (damage,) = store.damaged
    assert damage[0] <= 52_000
    assert damage[1] >= 53_000
    assert damage[1] - damage[0] < 16_384
    expected = {start for start, end in records(store) if end <= damage[0] or start >= damage[1]}
    assert {message.phy_offset for message in everything(store)} == expected - half_messages(store)


def test_a_patient_reader_says_what_it_could_not_read(store):
    with LogRange.open(store.commit_log, 0, 50_000) as bytes_:
        reader = ThrottledReader(bytes_)
        assert reader.read(100, 60_000) == bytes_.read(100, 49_900)
        assert reader.unreadable_in(0, 50_000) == ""
        os.close(bytes_._fds[0])
        with pytest.raises(OSError, match="Bad file"):
            reader.read(0, 10)
        bytes_._fds.clear()


@given(st.binary(min_size=1, max_size=300), st.data())
def test_find_flipped_bit(content, data):
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    assert find_flipped_bit(bytearray(changed), digest(content), range(len(content))) == (at, bit)
    assert find_flipped_bit(bytearray(changed), digest(content), [n for n in range(len(content)) if n != at]) is None


async def test_it_runs_after_the_start_and_then_every_interval(store, nursery, autojump_clock, monkeypatch):
    times, ends, there_at_the_start = [], [], store.max_offset

    async def scrub(self, end=None):
        times.append(trio.current_time())
        ends.append(end)
        self.rounds += 1

    monkeypatch.setattr(ScrubService, "scrub", scrub)
    store.scrub.interval_hours = 5
    nursery.start_soon(store.scrub.run)
    put(store, b"what comes later was looked at when it was appended")
    await trio.sleep(11 * 3600)
    nursery.cancel_scope.cancel()
    assert times == [60, 60 + 5 * 3600, 60 + 10 * 3600]
    assert ends == [there_at_the_start, None, None]


async def test_a_round_up_to_an_offset_reads_little_behind_it(store):
    """It ends with a piece that is read at once."""
    end = store.max_offset
    for _ in range(50):
        put(store, bytes(20_000))
    await store.scrub.scrub(end)
    assert end <= store.scrub.scrubbed_bytes < end + 200_000 < store.max_offset
    assert store.scrub.scrubbed_from == 0


@pytest.mark.parametrize(("speed", "hours", "rounds"), [(0, 1, 0), (1 << 40, 0, 1)])
async def test_it_can_be_turned_off_or_done_once(store, autojump_clock, speed, hours, rounds):
    store.scrub.bytes_per_second, store.scrub.interval_hours = speed, hours
    await store.scrub.run()
    assert store.scrub.rounds == rounds


async def test_it_keeps_to_its_speed(store, autojump_clock):
    store.scrub.bytes_per_second = 1000
    await store.scrub.scrub()
    assert trio.current_time() == pytest.approx(store.max_offset / 1000, rel=0.01)


def test_statistics_show_it(store):
    statistics = store.statistics()
    assert statistics.unscrubbed_bytes == store.scrub.scrubbed_from == store.max_offset
    assert statistics.damaged_bytes == statistics.wrong_units == 0


def put_right(root, at, value):
    """Restore bytes of a stopped store."""
    path = root / "commitlog" / f"{at - at % FILE_SIZE:020d}"
    content = bytearray(path.read_bytes())
    content[at % FILE_SIZE : at % FILE_SIZE + len(value)] = value
    path.write_bytes(content)


@pytest.mark.parametrize("at", [60, 110])  # In the header, where only the digest tells; in the body.
async def test_damage_that_is_put_right_is_served_again(tmp_path, at):
    """Known damage is remembered over a restart. What is sound again must not be kept from a consumer for that."""
    store = opened(tmp_path)
    fill(store, 300)
    await follow(store)
    start, end = records(store)[40]
    value = bytes(store.commit_log.read(start + at, 1))
    Bytes(store).flip(start + at, 1)
    await store.scrub.scrub()
    assert list(store.damaged) == [(start, end)]
    await store.close()
    store = opened(tmp_path)
    store.damaged.add(start, end)
    store.scrub.begin()
    assert list(store.damaged) == [(start, end)]
    await store.close()
    put_right(tmp_path, start + at, value)
    store = opened(tmp_path)
    store.damaged.add(start, end)
    store.scrub.begin()
    assert store.damaged.total == 0
    assert start in {message.phy_offset for message in everything(store)}
    store._release()


@pytest.mark.parametrize("at", [60, 110])
async def test_damage_that_is_put_right_while_we_run(store, at):
    await follow(store)
    start, end = records(store)[40]
    with Bytes(store) as log:
        log.flip(start + at, 1)
        await store.scrub.scrub()
        await store.scrub.scrub()
        assert list(store.damaged) == [(start, end)]
    await store.scrub.scrub()
    assert store.damaged.total == 0
    assert start in {message.phy_offset for message in everything(store)}


async def test_damage_goes_with_its_file(store):
    store.damaged.add(10, 20)
    store.damaged.add(FILE_SIZE - 10, FILE_SIZE + 10)
    store.commit_log.files.files.pop(0).delete()
    store.scrub.begin()
    assert all(start >= FILE_SIZE for start, _ in store.damaged)


def test_a_cut_takes_damage_with_it(store):
    store.damaged.add(5000, 6000)
    for listener in store.on_truncate:
        listener(5500)
    assert list(store.damaged) == [(5000, 5500)]


async def test_a_blank_in_place_of_a_message_makes_way_for_its_unit(store):
    """As left by a start with a damaged log; the log was repaired meanwhile."""
    queue = store.queue("T1", 1)
    unit = queue.unit(7)
    os.pwrite(queue.files.files[0].fd, UNIT.pack(0, 0x7FFFFFFF, 0), 20 * 7)
    await store.scrub.scrub()
    assert (known(store).wrong_units, known(store).repaired_units, store.damaged.total) == (0, 1, 0)
    assert queue.unit(7) == unit


def test_a_disk_that_breaks_does_not_fill_the_log_with_lines(capsys):
    found = KnownDamage()
    for number in range(1000):
        found.unit("T", 0, number, "broken")
    assert len(capsys.readouterr().out.splitlines()) == 201
    assert found.wrong_units == 1000


async def test_a_queue_that_cannot_be_read_does_not_end_the_broker(store, autojump_clock, monkeypatch):
    def units(queue, start, end):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ConsumeQueue, "units", units)
    store.scrub.interval_hours = 0
    await store.scrub.run()
    assert store.scrub.rounds == 0


@pytest.mark.parametrize("look_ups", [2_000, 1])
async def test_many_queues_are_not_searched_one_by_one(store, monkeypatch, look_ups):
    monkeypatch.setattr("twinlog.store.integrity.scrub._QUEUE_SEARCHES_MAX", look_ups)
    await follow(store)
    _, (start, end), *_ = records(store)
    with Bytes(store) as log:
        log.flip(start + 3, 0x10)
        await store.scrub.scrub()
        assert store.damaged.overlaps(start, end)
        assert start not in {message.phy_offset for message in everything(store)}
        trusted = store.scrub.check.trusted_from
        all_of_them = [trusted[queue] == queue.max_offset for _, _, queue in store.queues() if queue.max_offset]
        assert all(all_of_them) == (look_ups == 1)


async def test_much_damage_is_found_and_kept_from_consumers(store):
    """Then all queues are checked on read, instead of being searched for each damaged range."""
    await follow(store)
    places, halves = records(store), half_messages(store)
    broken = places[::7]
    with Bytes(store) as log:
        for start, _ in broken:
            log.flip(start + 3, 0x10)  # The size: the walk has to find the next record by itself.
        await store.scrub.scrub()
        assert all(store.damaged.overlaps(start, end) for start, end in broken)
        assert store.damaged.total == sum(end - start for start, end in broken)
        served = {message.phy_offset for message in everything(store)}
        assert served == {start for start, _ in places} - {start for start, _ in broken} - halves
        trusted = store.scrub.check.trusted_from
        assert all(trusted[queue] == queue.max_offset for _, _, queue in store.queues())

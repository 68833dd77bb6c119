"""The index beside its log: caught up, behind, after crashes, cuts and damage; always what RocketMQ would have written."""

import random
import shutil
from datetime import datetime

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from tests.store.index_ledger import ITEMS, SLOTS, Ledger, keyed
from tests.store.indexes import (
    entries_of,
    expected_files,
    index_files,
    make_index,
    running,
    take_apart,
    until_caught_up,
)
from tests.store.records import put_message
from twinlog.store.index import service as index_service
from twinlog.store.index.index_files import encode_note, load_note
from twinlog.store.index.repair import read_log
from twinlog.store.index.service import CHECK_SECONDS
from twinlog.store.util.sync import save_durably


def assert_same(found, expected, slots=SLOTS):
    """Byte for byte, with a readable difference."""
    for ours, theirs in zip(found, expected, strict=True):
        assert take_apart(ours, slots) == take_apart(theirs, slots)
    assert found == expected


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "store")


# Following


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_dispatched_is_indexed_as_rocketmq_does(tmp_path, autojump_clock, seed):
    """In batches of any size, with times of writing in between; the rest at the stop."""
    ledger = Ledger(tmp_path, seed)
    async with running(ledger.index()) as index:
        for _ in range(60):
            index.feed(ledger.put_any(ledger.random.randrange(5)))
            await trio.sleep(ledger.random.choice([0, 0.02, 2]))
    assert len(index_files(ledger.root)) > 3
    assert_same(index_files(ledger.root), ledger.expected())


async def test_a_log_that_was_there_before_is_indexed_in_the_background(ledger, autojump_clock):
    ledger.put_any(200)
    async with running(ledger.index()):
        pass
    assert_same(index_files(ledger.root), ledger.expected())


async def test_an_index_gets_level_with_a_log_that_never_stops_growing(ledger, autojump_clock, monkeypatch):
    """A message comes whenever the index has read a stretch of the log."""
    ledger.put_any(200)
    stretches = []

    async def read_log_slowly(log, offset, end):
        found = await read_log(log, offset, end)
        ledger.put_any(1)
        stretches.append(end - offset)
        assert len(stretches) < 100, "it runs after the log for ever"
        return found

    monkeypatch.setattr(index_service, "read_log", read_log_slowly)
    async with running(ledger.index()) as index:
        index.feed(ledger.put_any(5))
    assert_same(index_files(ledger.root), ledger.expected())


async def test_an_index_goes_on_where_it_ended(ledger, autojump_clock):
    """Several times; another broker wrote to the log in between."""
    for _ in range(10):
        ledger.put_any(7)
        async with running(ledger.index()) as index:
            index.feed(ledger.put_any(5))
            await trio.sleep(0.1)
    assert_same(index_files(ledger.root), ledger.expected())


async def test_an_index_that_cannot_be_written_falls_behind_and_reads_the_log_later(ledger, autojump_clock):
    slots, items = 1000, 15_000
    service = make_index(ledger.root, ledger.log, slots=slots, items=items, unwritten_max=50_000)
    (ledger.root / "index").write_text("in the way")
    async with running(service) as index:
        messages = [put_message(properties=b"UNIQ_KEY\x01%032d" % number, body=b"") for number in range(1000)]
        for _ in range(21):
            index.feed(ledger.put(*messages))
        assert not index.is_caught_up
        (ledger.root / "index").unlink()
        await until_caught_up(index)
        index.feed(ledger.put_any(1))
    assert_same(index_files(ledger.root), ledger.expected(slots, items), slots)


async def test_names_are_unique_and_in_order_where_time_goes_back(ledger, autojump_clock):
    times = iter([datetime(2026, 10, 25, 2, 59), datetime(2026, 10, 25, 2, 0), datetime(2026, 10, 25, 2, 0)])
    service = ledger.index()
    service._files.now = lambda: next(times)
    ledger.put_any(40)
    async with running(service):
        pass
    names = sorted(path.name for path in (ledger.root / "index").iterdir())
    assert names == ["20261025025900000", "20261025025900001", "20261025025900002"]
    assert_same(index_files(ledger.root), ledger.expected())


# Crashes


def crash(ledger, to):
    """What a killed process leaves: the files as they are, and no more."""
    shutil.copytree(ledger.root, to)
    copy = Ledger.__new__(Ledger)
    copy.__dict__.update(ledger.__dict__)
    copy.root, copy.log = to, ledger.log
    return copy


@pytest.mark.parametrize("seed", range(5))
async def test_after_a_kill_nothing_is_missing_or_twice(tmp_path, autojump_clock, seed):
    ledger = Ledger(tmp_path / "live", seed)
    async with running(ledger.index()) as index:
        for number in range(6):
            index.feed(ledger.put_any(ledger.random.randrange(30)))
            await trio.sleep(ledger.random.choice([0, 0.5, 1.1]))
            killed = crash(ledger, tmp_path / f"killed-{number}")
            async with running(killed.index(), after_crash=True):
                pass
            assert_same(index_files(killed.root), killed.expected())


async def fill(ledger, count=120):
    ledger.put_any(count)
    async with running(ledger.index()):
        pass
    return sorted((ledger.root / "index").iterdir())


@pytest.mark.parametrize("seed", range(12))
async def test_what_power_loss_tore_is_made_anew(tmp_path, autojump_clock, seed):
    """Any sectors of files not covered by the checkpoint may be lost."""
    slots, items = 200, 150
    ledger = Ledger(tmp_path, seed)
    ledger.put_any(250)
    async with running(ledger.index(slots, items)):
        pass
    (tmp_path / "checkpoint").unlink()
    choose = random.Random(seed)
    paths = sorted((tmp_path / "index").iterdir())
    assert len(paths) > 1
    for path in paths:
        content = bytearray(path.read_bytes())
        for _ in range(choose.randrange(3)):
            at = choose.randrange(0, len(content), 512)
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        path.write_bytes(content)
    async with running(ledger.index(slots, items), after_crash=True):
        pass
    assert_same(index_files(ledger.root), ledger.expected(slots, items), slots)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 8, 16, 24, 32, 36])
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("after_crash", [False, True])
async def test_a_flipped_bit_in_a_header_is_noticed(ledger, autojump_clock, at, number, after_crash):
    paths = await fill(ledger)
    content = bytearray(paths[number].read_bytes())
    content[at + 2] ^= 0x10
    paths[number].write_bytes(content)
    async with running(ledger.index(), after_crash=after_crash):
        pass
    assert_same(index_files(ledger.root), ledger.expected())


# What others left


@pytest.mark.parametrize("lost", [[0], [1], [-1], [0, 1], [-2]])
async def test_lost_files_are_made_anew_with_those_behind(ledger, autojump_clock, lost):
    """RocketMQ deletes the newest after a crash, and indexes only what its recovery walks: a hole is left."""
    paths = await fill(ledger)
    for number in lost:
        paths[number].unlink()
    with capture_logs() as logs:
        async with running(ledger.index()):
            pass
    assert_same(index_files(ledger.root), ledger.expected())
    dropped = [line for line in logs if "dropped" in line["event"]]
    assert len(dropped) == (0 if lost == [-1] else 1)


def _remove(paths, number):
    paths[number].unlink()


def _cut(paths, number):
    with paths[number].open("r+b") as file:
        file.truncate(100)


def _empty(paths, number):
    paths[number].write_bytes(b"")


def _replace(paths, number):
    copy = paths[number].read_bytes()
    paths[number].unlink()
    paths[number].write_bytes(bytes(len(copy)))


def _remove_directory(paths, _number):
    shutil.rmtree(paths[0].parent)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("harm", [_remove, _cut, _empty, _replace, _remove_directory])
async def test_what_somebody_does_to_files_of_a_running_index_is_made_good(ledger, autojump_clock, harm, number):
    """Noticed within seconds, in one line; queries find everything afterwards, and so does a later start."""
    entries = ledger.put_any(150)
    async with running(ledger.index()) as index:
        await index.flush()
        paths = sorted((ledger.root / "index").iterdir())
        assert len(paths) > 3
        with capture_logs() as logs:
            harm(paths, number)
            while not logs:  # Threads take real time.
                await trio.sleep(CHECK_SECONDS)
            index.feed(more := ledger.put_any(10))
            await until_caught_up(index)
        (line,) = [line for line in logs if line["log_level"] == "warning"]
        assert line["event"] == "index files dropped; they are rebuilt from the log"
        assert paths[number if harm is not _remove_directory else 0].name in line["reason"]
        for entry in (*entries, *more):
            topic, keys, phy_offset, _ = keyed(entry)
            for key in keys:
                assert phy_offset in await index.find(topic, key, 64, 0, 1 << 62)
    assert_same(index_files(ledger.root), ledger.expected())


async def test_a_running_index_that_nobody_touches_is_left_alone(ledger, autojump_clock):
    async with running(ledger.index()) as index:
        for _ in range(10):
            index.feed(ledger.put_any(20))
            with capture_logs() as logs:
                await trio.sleep(CHECK_SECONDS * 1.5)
            assert [line for line in logs if line["log_level"] != "info"] == []
    assert_same(index_files(ledger.root), ledger.expected())


async def test_messages_that_rocketmq_indexed_twice_stay(ledger, autojump_clock):
    """It does that with the last one after a crash; our own start adds nothing to it."""
    entries = ledger.put(put_message(properties=b"UNIQ_KEY\x01a\x02KEYS\x01b c"))
    twice = expected_files([keyed(entry) for entry in entries * 2], SLOTS, ITEMS)
    (ledger.root / "index").mkdir()
    (ledger.root / "index" / "20260131235959123").write_bytes(twice[0])
    async with running(ledger.index()) as index:
        assert index_files(ledger.root) == twice
        assert await index.find("T1", "b", 64, 0, 1 << 62) == [0, 0]
    assert index_files(ledger.root) == twice


async def test_a_message_whose_keys_were_cut_off_gets_the_others(ledger, autojump_clock):
    """A crash came between two keys of one message, at the end of a file or within."""
    for number in range(12):
        ledger.put(put_message(properties=b"UNIQ_KEY\x01%d\x02KEYS\x01b c d e f" % number))
    whole = ledger.expected()
    for keys in range(1, 6):
        root = ledger.root / "index"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        messages = [keyed(entry) for entry in entries_of(ledger.log)[:4]]
        topic, all_keys, offset, timestamp = messages[3]
        cut = expected_files([*messages[:3], (topic, all_keys[:keys], offset, timestamp)], SLOTS, ITEMS)
        for number, content in enumerate(cut):
            (root / f"2026013123595912{number}").write_bytes(content)
        async with running(ledger.index(), after_crash=True):
            pass
        assert_same(index_files(ledger.root), whole)


async def test_a_stop_before_the_index_was_level_leaves_a_note(ledger, autojump_clock):
    """RocketMQ adds its messages behind the last item, and the gap would go unnoticed."""
    note = ledger.root / "twinlog" / "index-behind"
    await fill(ledger, 30)
    assert not note.exists()
    behind = ledger.put_any(30)
    index = ledger.index()
    index.load(after_crash=False)
    with trio.CancelScope() as scope:
        scope.cancel()
        await index.run()
    await index.close()
    assert note.exists()
    late = ledger.put_any(10)
    others = [entry for entry in entries_of(ledger.log) if entry not in behind]
    shutil.rmtree(ledger.root / "index")
    (ledger.root / "index").mkdir()
    for number, content in enumerate(expected_files(map(keyed, others), SLOTS, ITEMS)):
        (ledger.root / "index" / f"202601312359591{number:02}").write_bytes(content)
    async with running(ledger.index()) as index:
        assert not note.exists()
    assert late
    assert_same(index_files(ledger.root), ledger.expected())


@pytest.mark.parametrize("at", [0, 9, 15, 27])
def test_a_note_with_a_flipped_bit_says_that_all_may_be_missing(tmp_path, at):
    save_durably(tmp_path / "twinlog" / "note", encode_note(12345))
    assert load_note(tmp_path / "twinlog" / "note") == 12345
    raw = bytearray((tmp_path / "twinlog" / "note").read_bytes())
    raw[at] ^= 1
    (tmp_path / "twinlog" / "note").write_bytes(raw)
    assert load_note(tmp_path / "twinlog" / "note") == 0
    assert load_note(tmp_path / "none") is None


async def test_files_of_another_size_are_left_alone(ledger, autojump_clock):
    """And so is the index, until the configuration is right again; then it catches up."""
    before = {path: path.read_bytes() for path in await fill(ledger)}
    other = ledger.index(items=ITEMS + 1)
    with capture_logs() as logs:
        other.load(after_crash=False)
    assert "maxIndexNum" in logs[0]["reason"]
    await other.run()
    other.feed(ledger.put_any(30))
    assert await other.find("T1", "a", 64, 0, 1 << 62) == []
    await other.close()
    assert {path: path.read_bytes() for path in (ledger.root / "index").iterdir()} == before
    async with running(ledger.index()):
        pass
    assert_same(index_files(ledger.root), ledger.expected())


async def test_an_index_that_is_switched_off_answers_what_it_has(ledger, autojump_clock):
    """Later it catches up, whichever broker wrote in between."""
    await fill(ledger, 40)
    before = index_files(ledger.root)
    index = ledger.index()
    index.config = attrs.evolve(index.config, message_index_enable=False)
    index.load(after_crash=False)
    await index.run()
    index.feed(ledger.put_any(40))
    assert await index.find("T1", "a", 64, 0, 1 << 62)
    await index.close()
    assert index_files(ledger.root) == before
    async with running(ledger.index()):
        pass
    assert_same(index_files(ledger.root), ledger.expected())


async def test_foreign_names_are_passed_over_and_an_unfinished_file_is_removed(ledger, autojump_clock):
    paths = await fill(ledger)
    (paths[0].parent / "notes.txt").write_text("x")
    (paths[0].parent / "20991231235959123").touch()
    with capture_logs() as logs:
        async with running(ledger.index()):
            pass
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "a foreign entry among the index files is ignored",
        "an unfinished last index file, left by a crash, is removed",
    ]
    (paths[0].parent / "notes.txt").unlink()
    assert_same(index_files(ledger.root), ledger.expected())


# Cuts and clean-up


@pytest.mark.parametrize("kept", [0, 1, 37, 119])
async def test_a_cut_log_takes_its_keys_along(ledger, autojump_clock, kept):
    """Also when it grows again at once, over the same offsets."""
    entries = ledger.put_any(120)
    async with running(ledger.index()) as index:
        ledger.log.files.cut(entries[kept].phy_offset)
        index.truncate(entries[kept].phy_offset)
        for entry in ledger.put_any(50):
            index.feed([entry])
        await until_caught_up(index)
        index.feed(ledger.put_any(3))
        await trio.sleep(0.1)
    assert_same(index_files(ledger.root), ledger.expected())


@pytest.mark.parametrize("kept", [0, 1, 37, 119])
async def test_a_cut_that_the_index_was_not_told_of_is_noticed_at_the_start(ledger, autojump_clock, kept):
    entries = ledger.put_any(120)
    async with running(ledger.index()):
        pass
    ledger.log.files.cut(entries[kept].phy_offset)
    ledger.put_any(200 if kept == 37 else 0)
    async with running(ledger.index()):
        pass
    assert_same(index_files(ledger.root), ledger.expected())


async def test_files_wholly_before_the_log_are_deleted_but_never_the_newest(ledger, autojump_clock):
    entries = ledger.put_any(120)
    async with running(ledger.index()) as index:
        count = index.statistics().files
        await index.flush()
        middle = take_apart(index_files(ledger.root)[2], SLOTS).header[3]  # The end of the third file.
        index.delete_before(middle)
        assert len(index_files(ledger.root)) == count - 2
        for _ in range(2):
            index.delete_before(entries[-1].phy_offset + 10_000)
            assert len(index_files(ledger.root)) == 1
    assert_same(index_files(ledger.root), ledger.expected()[-1:])


async def test_an_index_of_a_log_that_lost_its_first_files_is_kept(ledger, autojump_clock):
    """Items of deleted messages are no fault."""
    await fill(ledger)
    before = index_files(ledger.root)
    ledger.log.files.files.pop(0).delete()
    async with running(ledger.index(), after_crash=True):
        pass
    assert index_files(ledger.root) == before


async def test_damage_in_the_log_is_passed_over(ledger, autojump_clock):
    entries = ledger.put_any(60)
    broken = entries[30]
    file = ledger.log.files.file_at(broken.phy_offset)
    file.write_at(broken.phy_offset - file.start + 4, b"\0\0\0\0")
    async with running(ledger.index()):
        pass
    expected = expected_files([keyed(entry) for entry in entries if entry is not broken], SLOTS, ITEMS)
    assert_same(index_files(ledger.root), expected)


# A disk that refuses


async def test_a_disk_that_refuses_delays_the_index_and_loses_nothing(ledger, autojump_clock):
    (ledger.root / "index").write_text("in the way")
    with capture_logs() as logs:
        async with running(ledger.index()) as index:
            index.feed(ledger.put_any(100))
            while not index.failure:
                await trio.sleep(1)
            assert await index.find("T1", "a", 64, 0, 1 << 62)
            (ledger.root / "index").unlink()
            while index.failure:
                await trio.sleep(1)
    errors = [line["event"] for line in logs if line["log_level"] == "error"]
    assert errors == ["index write failed; retrying, its keys are still in the log"]
    assert_same(index_files(ledger.root), ledger.expected())


# Asking


async def test_the_newest_messages_of_a_time_are_found(ledger, autojump_clock):
    """From memory, from files that are written, and across files."""
    entries = [ledger.put(put_message(properties=b"KEYS\x01k other%d" % number))[0] for number in range(50)]
    async with running(ledger.index()) as index:
        for _ in range(2):
            found = await index.find("T1", "k", 64, 0, 1 << 62)
            assert found == [entry.phy_offset for entry in reversed(entries)]
            assert await index.find("T1", "k", 3, 0, 1 << 62) == found[:3]
            assert await index.find("T1", "other7", 3, 0, 1 << 62) == [entries[7].phy_offset]
            assert await index.find("T1", "nobody", 3, 0, 1 << 62) == []
            assert await index.find("T2", "k", 3, 0, 1 << 62) == []
            some = await index.find("T1", "k", 64, entries[10].store_timestamp, entries[20].store_timestamp)
            times = [entry.store_timestamp for entry in entries if entry.phy_offset in some]
            assert len(times) >= 8  # To the second.
            assert min(times) >= entries[10].store_timestamp
            assert max(times) < entries[20].store_timestamp + 1000
            await index.flush()


async def test_no_answer_has_more_than_the_limit(ledger, autojump_clock):
    for _ in range(70):
        ledger.put(put_message(properties=b"KEYS\x01k"))
    async with running(ledger.index(items=1000)) as index:
        assert len(await index.find("T1", "k", 1000, 0, 1 << 62)) == 64

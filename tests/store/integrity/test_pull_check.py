"""Checking a pull's records at once: the same answers as one by one, with fewer reads."""

import os
import random

import pytest
import trio
import trio.testing

from tests.store.read_checks import opened
from tests.store.records import put_message
from twinlog.store.integrity.pull_check import BROKEN, CheckAhead, sound_units
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.layout import UNIT


async def filled(root, *, others: int) -> MessageStore:
    """A store after a start: a queue of 100 messages with that many of other queues behind each."""
    store, rng = opened(root, mapped_file_size_commit_log=1 << 20), random.Random(6)
    for number in range(100):
        properties = b"UNIQ_KEY\x01%d\x02TAGS\x01t%d" % (number, number % 5)
        store.put([put_message("T", rng.randbytes(rng.randrange(0, 900)), properties=properties)])
        for other in range(others):
            store.put([put_message(f"O{other}", bytes(900))])
    store.dispatch_pending()
    await store.close()
    return opened(root, mapped_file_size_commit_log=1 << 20)


def reads_of(monkeypatch) -> list[int]:
    """How long each read of a file of the log is, from now on."""
    sizes: list[int] = []
    read = MappedFile.read

    def counted(file, position, size):
        if file.size == 1 << 20:
            sizes.append(size)
        return read(file, position, size)

    monkeypatch.setattr(MappedFile, "read", counted)
    return sizes


@pytest.mark.parametrize("others", [0, 3, 40])
@pytest.mark.parametrize("damage", [False, True])
async def test_it_says_what_the_check_of_each_unit_says(tmp_path, others, damage):
    store = await filled(tmp_path, others=others)
    check, queue = store.scrub.check, store.queue("T", 0)
    units = queue.read(0, 100)
    if damage:  # One byte of the body, or of what follows it, in every tenth record.
        for number in range(0, 100, 10):
            phy_offset, size, _ = UNIT.unpack_from(units, number * UNIT.size)
            file = store.commit_log.files.file_at(phy_offset)
            position = phy_offset - file.start + size - number % 3 * 20 - 1
            file.write_at(position, bytes((file.read(position, 1)[0] ^ 1,)))
    found = list(sound_units(check, queue, 0, units))
    alone = [check.unit(queue, number, *unit) for number, unit in enumerate(UNIT.iter_unpack(units))]
    assert [each[1:] if each[1] != BROKEN else None for each in found] == alone
    assert [each[0] for each in found] == [unit[0] for unit in UNIT.iter_unpack(units)]
    assert (None in alone) == damage
    await store.close()


@pytest.mark.parametrize(("others", "reads_max"), [(0, 1), (3, 1), (40, 32)])
async def test_what_lies_close_together_is_read_in_one_go(tmp_path, monkeypatch, others, reads_max):
    store = await filled(tmp_path, others=others)
    sizes = reads_of(monkeypatch)
    result = store.get_message("T", 0, 0, 32, None)
    assert result.message_count == 32
    assert 0 < len(sizes) <= reads_max
    assert sum(sizes) < 256 << 10, "what lies in between is not read where it is much"
    await store.close()


@pytest.mark.parametrize(("others", "is_asked"), [(3, True), (40, False)])
async def test_the_disk_is_asked_once_for_what_comes_next(tmp_path, monkeypatch, others, is_asked):
    """Not where messages are far apart: most of it would be read in vain."""
    store = await filled(tmp_path, others=others)
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *advice: asked.append(advice))
    for offset in (0, 32, 32):
        store.get_message("T", 0, offset, 32, None)
    fd = store.commit_log.files.files[0].fd
    assert asked == [(fd, 1 << 20, 4 << 20, os.POSIX_FADV_WILLNEED)] * is_asked
    await store.close()


async def test_what_lies_far_apart_is_not_read_again_either(tmp_path, monkeypatch):
    """Else it would be read once ahead of the consumer and once for it."""
    store = await filled(tmp_path, others=40)
    store.get_message("T", 0, 0, 32, None)
    sizes = reads_of(monkeypatch)
    assert store.get_message("T", 0, 0, 32, None).message_count == 32
    assert sizes == []
    await store.close()


async def test_nothing_is_looked_at_ahead_once_there_is_damage(tmp_path, monkeypatch, nursery):
    """Every pull looks for itself then, so that it would be in vain."""
    store = await filled(tmp_path, others=0)
    queue, check = store.queue("T", 0), store.scrub.check
    check.known.record(0, 300, "a test")
    ahead, sizes = CheckAhead(check), reads_of(monkeypatch)
    nursery.start_soon(ahead.run)
    ahead.pulled(queue, 10)
    await trio.testing.wait_all_tasks_blocked()
    assert sizes == []
    await store.close()


async def test_what_was_sound_is_not_read_again(tmp_path, monkeypatch):
    """By another group, for example; until damage is found anywhere, or the scrub finds a difference."""
    store = await filled(tmp_path, others=0)
    check = store.scrub.check
    for offset in (0, 32):
        store.get_message("T", 0, offset, 32, None)
    sizes = reads_of(monkeypatch)
    assert store.get_message("T", 0, 0, 32, None).message_count == 32
    assert store.get_message("T", 0, 20, 40, None).message_count == 32
    assert sizes == []
    store.get_message("T", 0, 40, 32, None)
    assert len(sizes) == 1, "the last of these are new"
    check.distrust_below(store.queue("T", 0), 10)
    store.get_message("T", 0, 0, 32, None)
    assert len(sizes) == 2
    file = store.commit_log.files.files[0]
    file.write_at(200, bytes((file.read(200, 1)[0] ^ 1,)))
    check.known.record(0, 300, "a test")
    store.get_message("T", 0, 0, 32, None)
    assert len(sizes) > 2
    await store.close()


async def test_the_next_pull_finds_its_records_checked(tmp_path, monkeypatch, nursery):
    """Some way ahead of the consumer, no farther, and no more than is to be checked at all."""
    store = await filled(tmp_path, others=0)
    queue, check = store.queue("T", 0), store.scrub.check
    ahead = CheckAhead(check)
    nursery.start_soon(ahead.run)
    monkeypatch.setattr("twinlog.store.integrity.pull_check._UNITS_AHEAD", 64)
    assert store.get_message("T", 0, 0, 10, None).message_count == 10
    assert check.checked_end(queue, 0) == 10
    ahead.pulled(queue, 10)
    await trio.testing.wait_all_tasks_blocked()
    assert check.checked_end(queue, 10) == 74
    sizes = reads_of(monkeypatch)
    assert store.get_message("T", 0, 10, 32, None).message_count == 32
    assert sizes == []
    ahead.pulled(queue, 42)
    await trio.testing.wait_all_tasks_blocked()
    assert check.checked_end(queue, 42) == 100
    await store.close()


async def test_checking_ahead_ends_at_damage(tmp_path, nursery):
    """It is not checked again and again, and never served."""
    store = await filled(tmp_path, others=0)
    queue, check = store.queue("T", 0), store.scrub.check
    unit = queue.unit(20)
    file = store.commit_log.files.file_at(unit.phy_offset)
    file.write_at(unit.phy_offset + 90, bytes((file.read(unit.phy_offset + 90, 1)[0] ^ 1,)))
    ahead = CheckAhead(check)
    nursery.start_soon(ahead.run)
    ahead.pulled(queue, 0)
    with trio.fail_after(5):
        await trio.testing.wait_all_tasks_blocked()
    assert check.known.damaged
    result = store.get_message("T", 0, 0, 32, None)
    assert (result.message_count, result.next_offset) == (32, 33)
    await store.close()

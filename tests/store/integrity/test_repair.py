"""Damaged bytes are repaired from another member, and only with bytes that were written here."""

import random
import shutil

import pytest
import trio

from tests.store.cutting import NOW, content, opened
from tests.store.records import put_message
from twinlog.store.config import BrokerRole
from twinlog.store.integrity.digest import DigestBlock, digest, parts_of
from twinlog.store.integrity.repair import RepairError, RepairSpan
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.verify.verify import verify
from twinlog.store.offline.walk import walk_log
from twinlog.store.read.get_message import GetStatus
from twinlog.store.record.message import decode_message

FILE_SIZE = 1 << 18
SIZES = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 6_000}
COUNT = 250


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store whose log has digests, after a clean stop."""
    root = tmp_path_factory.mktemp("sound") / "store"
    store = opened(root, BrokerRole.ASYNC_MASTER, [NOW], **SIZES)
    rng = random.Random(1)
    for number in range(COUNT):
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{number}\x02TAGS\x01t{number % 3}".encode()
        body = rng.randbytes(rng.choice([10, 700, 3000]))
        store.put([put_message(f"T{number % 2}", body, queue_id=number % 3, properties=properties)])
    assert store.max_offset > FILE_SIZE
    trio.run(store.close)
    return root


@pytest.fixture
def damage(tmp_path, sound):
    """Open a copy in which these bytes are other ones, and scrub it; what is known of it then."""

    async def make(*changes, role=BrokerRole.ASYNC_MASTER):
        root = shutil.copytree(sound, tmp_path / "damaged")
        for at, change in changes:
            path = root / "commitlog" / f"{at - at % FILE_SIZE:020d}"
            data = bytearray(path.read_bytes())
            data[at % FILE_SIZE] ^= change
            path.write_bytes(data)
        store = opened(root, role, [NOW], **SIZES)
        await store.scrub.scrub()
        return store

    return make


def records(root):
    """Start and end of each record, in order, and the log's bytes."""
    with StoreDirectory.open(root) as directory:
        entries = [entry for piece in walk_log(directory.log) for entry in getattr(piece, "entries", ())]
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    return [(entry.phy_offset, entry.phy_offset + entry.size) for entry in entries], log


def check_is(store, sound):
    """All of it is what was written, durably, and nothing is damaged any more."""
    assert (store.damaged.total, store.statistics().in_doubt_bytes) == (0, 0)
    assert content(store.config.root / "commitlog") == content(sound / "commitlog")
    with StoreDirectory.open(store.config.root) as directory:
        assert [finding.message for finding in verify(directory).findings if finding.severity == "error"] == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["body", "header", "properties", "two bits", "three records"])
async def test_what_was_damaged_is_put_right(sound, damage, where):
    """Whatever it was that found it: a CRC, or a digest alone."""
    found, log = records(sound)
    start, end = found[40]
    changes = {
        "body": [(start + 90, 0xFF)],
        "header": [(start + 16, 1)],
        "properties": [(end - 1, 4)],
        "two bits": [(start + 16, 1), (end - 1, 4)],
        "three records": [(found[n][0] + 90, 1) for n in (40, 41, 43)],
    }[where]
    store = await damage(*changes)
    assert store.damaged.total or store.statistics().in_doubt_bytes
    (span,) = await store.repairs.spans()
    assert span.start <= start
    assert end <= span.end
    before = {path: path.stat().st_mtime_ns for path in (store.config.root / "commitlog").iterdir()}
    message = decode_message(log[start:end])  # A pull that came before the scrub found that its unit leads nowhere.
    store.scrub.known.unit(message.topic, message.queue_id, message.queue_offset, "no record begins there")
    await store.repairs.repair(span.start, log[span.start : span.end], {})
    assert {path: path.stat().st_mtime_ns for path in before} == before  # RocketMQ deletes files by their time.
    check_is(store, sound)
    assert store.statistics().wrong_units == 0
    assert bytes(store.message_at(start)) == log[start:end]
    assert await store.repairs.spans() == []
    await store.scrub.scrub()
    check_is(store, sound)
    await store.close()


async def test_nothing_else_is_taken(sound, damage):
    """Each bit that another member may have wrong, in the record and beside it, whatever CRCs say."""
    found, log = records(sound)
    start, end = found[40]
    store = await damage((start + 90, 0xFF))
    (span,) = await store.repairs.spans()
    assert (span.start, span.end) == (start, end)
    begin, stop = found[39][0], found[41][1]
    right, lies = log[begin:stop], content(store.config.root / "commitlog")
    rng = random.Random(2)
    for at in {*range(88), *rng.sample(range(len(right)), 100), *range(end - begin - 40, end - begin + 40)}:
        wrong = bytearray(right)
        wrong[at] ^= 1 << rng.randrange(8)
        with pytest.raises(RepairError):
            await store.repairs.repair(begin, bytes(wrong), {})
    for data in (b"", right[:-1], right[1:], right + b"x", log[found[42][0] : found[44][1]]):
        with pytest.raises(RepairError):
            await store.repairs.repair(begin, data, {})
    with pytest.raises(RepairError, match="are not known to be damaged"):
        await store.repairs.repair(found[60][0], log[found[60][0] : found[60][1]], {})
    assert content(store.config.root / "commitlog") == lies
    assert store.damaged.overlaps(start, end)
    await store.repairs.repair(begin, right, {})
    check_is(store, sound)
    await store.close()


async def test_without_a_digest_of_ours_the_other_members_has_to_say_the_same(sound, damage):
    """Ours may be of the damaged bytes: it was made when they were there already."""
    found, log = records(sound)
    start, end = found[40]
    store = await damage((start + 90, 0xFF))
    own = b"".join(file.path.read_bytes() for file in store.commit_log.files.files)
    for low, high in parts_of(start - start % 65_536, end):
        high = low + 65_536
        store.digest.replace(DigestBlock(low, high, digest(own[low:high])))
    other = bytearray(log)
    other[end - 1] ^= 1  # No CRC covers the last byte of the properties.
    theirs = {
        (low, low + 65_536): digest(bytes(other[low : low + 65_536]))
        for low, _ in parts_of(start - start % 65_536, end)
    }
    ours = {(low, high): digest(log[low:high]) for low, high in theirs}
    for data, digests in (
        (log[start:end], {}),
        (log[start:end], theirs),
        (bytes(other[start:end]), {}),
        (bytes(other[start:end]), ours),
    ):
        with pytest.raises(RepairError, match="nothing proves bytes"):
            await store.repairs.repair(start, data, digests)
    await store.repairs.repair(start, log[start:end], ours)
    check_is(store, sound)
    assert {(b.start, b.end): b.digest for b in store.digest.digests.blocks(start, end)} == ours
    await store.close()


async def test_the_end_of_a_file_and_the_blank_there(sound, damage):
    found, log = records(sound)
    start, end = next(each for each in reversed(found) if each[0] < FILE_SIZE)
    store = await damage((start + 90, 1), (end + 1, 1))  # The last record, and the head of the blank.
    spans = await store.repairs.spans()
    assert [(span.start, span.end) for span in spans] == [(start, FILE_SIZE)]
    await store.repairs.repair(start, log[start:FILE_SIZE], {})
    check_is(store, sound)
    await store.close()


async def test_a_message_that_recovery_left_out_is_in_its_queue_again(tmp_path, sound):
    """Recovery finds it damaged, puts the later ones behind a blank; after the repair the blank makes way."""
    found, log = records(sound)
    start, end = found[40]
    root = shutil.copytree(sound, tmp_path / "store")
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[start + 90] ^= 1
    path.write_bytes(data)
    shutil.rmtree(root / "consumequeue")
    store = opened(root, BrokerRole.ASYNC_MASTER, [NOW], **SIZES)
    assert store.damaged.overlaps(start, end)
    topic, queue_id, number = "T0", 40 % 3, int.from_bytes(log[start + 20 : start + 28])
    assert store.queue(topic, queue_id).unit(number).is_blank
    await store.repairs.repair(start, log[start:end], {})
    result = store.get_message(topic, queue_id, number, 1, None)
    assert result.status is GetStatus.FOUND
    assert bytes(result.buffers[0]) == log[start:end]
    await store.close()
    store = opened(root, BrokerRole.ASYNC_MASTER, [NOW], **SIZES)
    assert content(root / "consumequeue") == content(sound / "consumequeue")
    check_is(store, sound)
    await store.close()


async def test_what_is_too_large_is_left_to_a_person(sound, damage, monkeypatch):
    found, _ = records(sound)
    store = await damage()
    monkeypatch.setattr("twinlog.store.integrity.repair.SPAN_MAX", 4096)
    assert await store.repairs.spans() == []
    store.repairs.known.damaged.add(*found[40])
    assert await store.repairs.spans() == [RepairSpan(*found[40])]
    store.repairs.known.damaged.add(found[60][0], found[70][1])
    assert found[70][1] - found[60][0] > 4096
    assert await store.repairs.spans() == (
        [RepairSpan(*found[40])] if found[40][1] // 65_536 != found[60][0] // 65_536 else []
    )
    await store.close()


async def test_a_disk_that_does_not_keep_it(sound, damage, monkeypatch):
    """Then it stays damaged, and says so."""
    found, log = records(sound)
    start, end = found[40]
    store = await damage((start + 90, 0xFF))
    monkeypatch.setattr("twinlog.store.log.mapped_file.MappedFile.write_at", lambda *_: None)
    with pytest.raises(OSError, match="does not keep what is written"):
        await store.repairs.repair(start, log[start:end], {})
    assert store.damaged.overlaps(start, end)
    assert store.message_at(start) is None
    monkeypatch.undo()
    await store.close()

"""Who is asked for what is damaged here, and how often."""

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs

from tests.helpers import log_bytes, open_store, put
from twinlog.ha.errors import HAPeerError
from twinlog.ha.slave.repair import CHECK_SECONDS, TRY_AGAIN_SECONDS, RepairService
from twinlog.store.integrity.digest import BLOCK_SIZE, RangeDigests, digest, parts_of
from twinlog.store.integrity.repair import RepairError, RepairSpan

FILE_SIZE = 1 << 18


@define(eq=False)
class FakePeer:
    """A member with this log; of a RocketMQ broker there are no digests."""

    log: bytes
    has_digests: bool = True
    fails: bool = False
    asked: list[int] = field(factory=list)

    async def record(self, phy_offset):
        self.asked.append(phy_offset)
        if self.fails:
            raise HAPeerError("no answer")
        size = int.from_bytes(self.log[phy_offset : phy_offset + 4])
        is_record = self.log[phy_offset + 4 : phy_offset + 8] == bytes.fromhex("DAA320A7")
        return self.log[phy_offset : phy_offset + size] if is_record else None

    async def digests(self, start, end, *, blocks_per_digest=1):
        if not self.has_digests:
            return None
        bounds = parts_of(start, end, blocks_per_digest * BLOCK_SIZE)
        return RangeDigests(start, end, blocks_per_digest, tuple(digest(self.log[low:high]) for low, high in bounds))


@pytest.fixture
def damaged(tmp_path):
    """A store with a broken record that it knows of, the log as it was, and where the record lies. It has no digests."""
    store = open_store(tmp_path, file_size=FILE_SIZE)
    put(store, *(bytes([n % 256]) * 3000 for n in range(100)))
    log = log_bytes(store)
    start = int.from_bytes(log[:4]) * 30
    end = start + int.from_bytes(log[:4])
    store.commit_log.files.files[0].write_at(start + 100, b"broken")
    store.damaged.add(start, end)
    return store, log, RepairSpan(start, end)


async def test_what_is_damaged_is_fetched(damaged, autojump_clock, nursery):
    store, log, span = damaged
    peer = FakePeer(log)
    service = RepairService(store, lambda: [peer])
    nursery.start_soon(service.run)
    await trio.sleep(CHECK_SECONDS - 1)
    assert peer.asked == []
    while store.damaged:
        await trio.sleep(1)
    assert peer.asked == [span.start]
    assert log_bytes(store) == log
    await trio.sleep(10 * CHECK_SECONDS)
    assert peer.asked == [span.start]
    await store.close()


async def test_members_that_cannot_help_are_told_once_and_asked_again_later(damaged, autojump_clock):
    """One is gone, one is RocketMQ's, for which nothing here vouches, one has something else. The fourth has it."""
    store, log, span = damaged
    peers = [FakePeer(log, fails=True), FakePeer(log, has_digests=False), FakePeer(b"\0" * len(log))]
    service = RepairService(store, lambda: peers)
    with capture_logs() as lines:
        await service.check()
        await service.check()
        assert [len(peer.asked) for peer in peers] == [1, 1, 1]
        await trio.sleep(TRY_AGAIN_SECONDS + 1)
        await service.check()
        assert [len(peer.asked) for peer in peers] == [2, 2, 2]
    (line,) = lines
    assert (line["offset"], line["bytes"]) == (span.start, span.end - span.start)
    assert all(text in line["why"] for text in ("no answer", "nothing proves bytes", "no record at"))
    assert store.damaged.overlaps(span.start, span.end)
    peers.append(FakePeer(log))
    await trio.sleep(TRY_AGAIN_SECONDS + 1)
    await service.check()
    assert not store.damaged
    assert log_bytes(store) == log
    await store.close()


async def test_a_member_with_another_record_there_infects_nobody(damaged, autojump_clock):
    """Its own digest says what it says; but it differs from this log beside the damage, in the same block."""
    store, log, span = damaged
    foreign = bytearray(log)
    foreign[span.start - 1] ^= 1
    foreign[span.start + 100] ^= 1
    peer = FakePeer(bytes(foreign))
    with pytest.raises(RepairError, match="no sound record begins"):
        await store.repairs.repair(span.start, bytes(foreign[span.start : span.end]), {})
    await RepairService(store, lambda: [peer]).check()
    assert store.damaged.overlaps(span.start, span.end)
    assert log_bytes(store) != log
    await store.close()


async def test_behind_the_last_record_of_a_file_there_is_no_record(damaged, autojump_clock):
    """The blank there is taken from this log, where it is well."""
    store, log, _ = damaged
    size = int.from_bytes(log[:4])
    last = (FILE_SIZE - 8) // size * size - size
    store.damaged.remove(0, 1 << 62)
    store.commit_log.files.files[0].write_at(0, log[:last])
    store.commit_log.files.files[0].write_at(last + 100, b"broken")
    store.damaged.add(last, FILE_SIZE)
    await RepairService(store, lambda: [FakePeer(log)]).check()
    assert not store.damaged
    assert log_bytes(store) == log
    await store.close()

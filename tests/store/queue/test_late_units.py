"""Units that the disk gets a little later: found all the same, and made anew where a crash took them."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import LATE_BYTES_MAX, ConsumeQueue
from twinlog.store.queue.layout import UNIT, Unit
from twinlog.store.record.scan import DispatchEntry

FILE_UNITS = 7


def entry(number):
    return DispatchEntry("T", 0, number, number * 100, 100, number * 3 + 1, 0, 0, b"")


class Queue:
    """A queue whose units go to the disk late, or at once."""

    def __init__(self, directory, *, late):
        self.queue = ConsumeQueue("T", 0, MappedFileQueue(directory, FILE_UNITS * 20, "mappedFileSizeConsumeQueue"))
        self.late = late

    def extend(self, count):
        for _ in range(count):
            assert self.queue.stage(entry(self.queue.max_offset if self.queue._next is None else self.queue._next))
        self.queue.write(late_max=LATE_BYTES_MAX if self.late else 0)

    def put(self, count):
        """As a table does it: in memory where that can be, else staged."""
        for _ in range(count):
            new = entry(self.queue.max_offset if self.queue._next is None else self.queue._next)
            assert (self.late and self.queue.put_late(new)) or self.queue.stage(new)
        self.queue.write(late_max=LATE_BYTES_MAX if self.late else 0)

    def settle(self, _count):
        self.queue.write_late()

    def cut(self, number):
        self.queue.rewind(number * 100)

    def put_right(self, number):
        self.queue.repair_unit(number, Unit(number * 100, 100, 77))

    def append_at_once(self, count):
        late, self.late = self.late, False
        self.extend(count)
        self.late = late

    def seen(self):
        queue = self.queue
        units = [queue.read(number, count) for number in range(queue.max_offset + 1) for count in (1, 3, FILE_UNITS)]
        return units, queue.max_offset, queue.max_phy_offset

    def on_disk(self):
        end = self.queue.max_offset * 20
        return b"".join(file.path.read_bytes() for file in self.queue.files.files)[:end]


steps = st.tuples(
    st.sampled_from(["extend", "put", "settle", "cut", "put_right", "append_at_once"]), st.integers(0, 17)
)


@given(st.lists(steps, max_size=12))
def test_readers_notice_nothing(tmp_path_factory, ops):
    """Whatever comes in whatever order; and once it is asked to, the disk has the same."""
    root = tmp_path_factory.mktemp("queues")
    one, other = Queue(root / "late", late=True), Queue(root / "at once", late=False)
    for what, number in ops:
        for queue in (one, other):
            getattr(queue, what)(number)
        assert one.seen() == other.seen()
    one.settle(0)
    assert one.on_disk() == other.on_disk()
    for queue in (one, other):
        queue.queue.files.close()


def test_only_the_next_message_of_a_queue_is_put_in_memory(tmp_path):
    queue = Queue(tmp_path, late=True)
    assert not queue.queue.put_late(entry(0))  # There is no file yet.
    queue.extend(2)
    assert not queue.queue.put_late(entry(1))  # It is there.
    assert not queue.queue.put_late(entry(3))  # One is missing before it.
    assert queue.queue.put_late(entry(2))
    queue.queue.stage(entry(3))
    assert not queue.queue.put_late(entry(4))  # Behind one that is not written yet.
    queue.queue.write(late_max=LATE_BYTES_MAX)
    assert queue.queue.put_late(entry(4))
    assert queue.queue.put_late(entry(5))
    assert not queue.queue.put_late(entry(6))  # It would fill the file.
    assert queue.queue.max_offset == FILE_UNITS - 1
    queue.queue.files.close()


def test_few_units_wait_and_many_do_not(tmp_path):
    queue = ConsumeQueue("T", 0, MappedFileQueue(tmp_path, 300_000 * 20, "mappedFileSizeConsumeQueue"))
    sizes = []
    for number in range(1000):
        queue.stage(entry(number))
        queue.write(late_max=LATE_BYTES_MAX)
        sizes.append(queue.files.files[-1].late_size)
    assert sizes[:3] == [20, 40, 60]
    assert max(sizes) <= 4096
    written = queue.files.files[-1].path.read_bytes()[: 1000 * 20 - sizes[-1]]
    assert written == b"".join(UNIT.pack(n * 100, 100, n * 3 + 1) for n in range(len(written) // 20))
    assert len(written) >= 1000 * 20 - 4096
    queue.files.close()


def test_a_file_that_is_full_lacks_nothing(tmp_path):
    queue = Queue(tmp_path, late=True)
    for _ in range(FILE_UNITS + 2):
        queue.extend(1)
    first, last = queue.queue.files.files
    assert first.late_size == 0
    assert last.late_size == 40
    assert first.path.read_bytes() == b"".join(UNIT.pack(n * 100, 100, n * 3 + 1) for n in range(FILE_UNITS))
    queue.queue.files.close()


@pytest.fixture
async def store(tmp_path, nursery):
    store = MessageStore(StoreConfig(root=tmp_path, mapped_file_size_commit_log=1 << 20))
    store.load()
    await nursery.start(store.run)
    await trio.sleep(0.001)
    return store


def put(store, count):
    store.put([put_message(queue_id=number % 3) for number in range(count)])
    store.dispatch_pending()
    return [store.queue("T1", number) for number in range(3)]


def late_sizes(queues):
    return [file.late_size for queue in queues for file in queue.files.files]


async def test_the_disk_gets_them_soon(store, autojump_clock):
    queues = put(store, 9)
    assert late_sizes(queues) == [60, 60, 60]
    assert not store._queues.is_written
    await trio.sleep(0.03)
    assert late_sizes(queues) == [0, 0, 0]
    assert store._queues.is_written
    assert [len(queue.files.files[0].path.read_bytes().rstrip(b"\0")) > 40 for queue in queues] == [True] * 3


async def test_a_flush_has_them_all(store, autojump_clock):
    queues = put(store, 9)
    await store.flusher.flush()
    assert await store._parts.queue_flusher.flush(thorough=True)
    assert late_sizes(queues) == [0, 0, 0]
    assert store._parts.points.offset == store.max_offset


async def test_a_flush_of_full_pages_leaves_what_is_less(store, autojump_clock, monkeypatch):
    """Each second, so it writes to no queue that has only a few new units; what it syncs was written."""
    queues, late = put(store, 9), []

    async def sync(*_):
        late.append(late_sizes(queues))

    monkeypatch.setattr("twinlog.store.services.flush._sync", sync)
    assert await store._parts.queue_flusher.flush(thorough=False)
    assert late_sizes(queues) == [60, 60, 60]
    store.put([put_message(queue_id=0) for _ in range(450)])  # Two pages and some.
    store.dispatch_pending()
    store.put([put_message(queue_id=0)])
    store.dispatch_pending()
    assert late_sizes(queues) == [20, 60, 60]
    assert await store._parts.queue_flusher.flush(thorough=False)
    assert late == [[0, 60, 60]]
    file = queues[0].files.files[0]
    assert file.flushed == file.wrote == 454 * 20


async def test_units_of_very_many_queues_wait_for_each_other(store, autojump_clock):
    """From the second round on: the first one tells how many there are."""
    many = 4_000
    for waited in (0.02, 2.0):
        store.put([put_message(queue_id=number) for number in range(many)])
        store.dispatch_pending()
        began = trio.current_time()
        while store._queues.late_count:
            await trio.sleep(0.005)
        assert trio.current_time() - began == pytest.approx(waited, abs=0.015)


async def test_a_crash_takes_none(store, autojump_clock):
    """Units that were reported are there again, in the same places."""
    queues = put(store, 9)
    before = [queue.read(0, 9) for queue in queues]
    assert late_sizes(queues) == [60, 60, 60]
    store._release()
    again = MessageStore(store.config)
    again.load()
    assert [again.queue("T1", number).read(0, 9) for number in range(3)] == before
    assert again.dispatched_offset == again.max_offset > 0
    again._release()


async def test_a_store_that_stops_leaves_none(store, autojump_clock):
    queues = put(store, 9)
    await store.close()
    assert late_sizes(queues) == []
    again = MessageStore(store.config)
    again.load()
    assert [again.queue("T1", number).max_offset for number in range(3)] == [3, 3, 3]
    again._release()


async def test_many_queues_are_written_to_in_slices(store, autojump_clock):
    """However many there are, the loop goes on between them."""
    store.put([put_message(queue_id=number) for number in range(600)])
    store.dispatch_pending()
    assert store._queues.late_count == 600
    await trio.sleep(0.02)
    counts = []
    for _ in range(6):
        counts.append(store._queues.late_count)
        await trio.lowlevel.checkpoint()
    assert {600 - 256, 600 - 512} & set(counts)
    assert store._queues.is_written

"""Stores to cut: a slave with what a master sent it, and what is to be found in it."""

from pathlib import Path

from attrs import frozen

from tests.store.records import put_message
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import DispatchEntry, scan_records

FILE_SIZE, QUEUE_FILE_SIZE = 1 << 14, 400
NOW = 1_700_000_000_000


def opened(root: Path, role: BrokerRole, clock: list[int], **more: object) -> MessageStore:
    """A store with small files, loaded but not run."""
    small = {
        "mapped_file_size_commit_log": FILE_SIZE,
        "mapped_file_size_consume_queue": QUEUE_FILE_SIZE,
        "max_hash_slot_num": 100,
        "max_index_num": 40,
    }
    store = MessageStore(
        StoreConfig(root=root, broker_role=role, **(small | more)), StoreHooks(now_ms=lambda: clock[0])
    )
    store.load()
    return store


@frozen
class History:
    """A log as a master wrote it, from byte `start` on."""

    start: int
    data: bytes
    entries: list[DispatchEntry]

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def boundaries(self) -> list[int]:
        """Where records and blanks begin, and files."""
        found = {self.start, self.end}
        for entry in self.entries:
            found |= {entry.phy_offset, entry.phy_offset + entry.size}
        return sorted(found | set(range(-(-self.start // FILE_SIZE) * FILE_SIZE, self.end, FILE_SIZE)))

    def below(self, offset: int) -> "History":
        entries = [entry for entry in self.entries if entry.phy_offset < offset]
        return History(self.start, self.data[: offset - self.start], entries)


def history_of(data: bytes) -> History:
    """A log of these bytes, and the entries that dispatch would get."""
    entries: list[DispatchEntry] = []
    at = 0
    while at < len(data):
        scan = scan_records(data[at:], at, FILE_SIZE, check_crc=True)
        entries += scan.entries
        at += scan.consumed
    return History(0, data, entries)


def history(root: Path, *, seed: int = 0, count: int = 60) -> History:
    """Messages of some queues, with keys, in a few files; one queue begins late."""
    clock = [NOW]
    store = opened(root, BrokerRole.ASYNC_MASTER, clock)
    for number in range(count):
        clock[0] += 1_000
        topic = "Late" if number == count * 2 // 3 else f"T{number % 3}"
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{seed}-{number}\x02TAGS\x01tag{number % 2}".encode()
        body = bytes([65 + (seed + number) % 26]) * (100 + (seed * 37 + number * 211) % 1500)
        store.put([put_message(topic, body, queue_id=number % 2, properties=properties)])
    data = b"".join(file.path.read_bytes() for file in store.commit_log.files.files)[: store.max_offset]
    store._release()
    return history_of(data)


def open_slave(root: Path, **more: object) -> MessageStore:
    return opened(root, BrokerRole.SLAVE, [NOW], **more)


def feed(store: MessageStore, what: History) -> None:
    """As a slave gets it; what it has already is left out."""
    begin = store.max_offset
    entries = [entry for entry in what.entries if entry.phy_offset >= begin]
    store.append_replicated(what.data[begin - what.start :], entries)
    store.dispatch_pending()


def check_is(store: MessageStore, what: History) -> None:
    """The store holds just this, and nothing else lies in its log on the disk."""
    assert (store.max_offset, store.dispatched_offset) == (what.end, what.end)
    assert store.flushed_offset <= what.end
    units = {}
    for topic, queue_id, queue in store.queues():
        for number in range(queue.min_offset, queue.max_offset):
            if not (unit := queue.unit(number)).is_blank:
                units[topic, queue_id, number] = unit[:2]
    assert units == {tuple(entry[:3]): (entry.phy_offset, entry.size) for entry in what.entries}
    files = sorted((store.config.root / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files)
    assert data[: len(what.data)] == what.data
    assert not data[len(what.data) :].strip(b"\0")
    assert len(files) == -(-len(what.data) // FILE_SIZE)


def content(directory: Path) -> dict[str, bytes]:
    """By path, what lies in a directory and is not all zero."""
    files = {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
    return {str(path.relative_to(directory)): data for path, data in files.items() if data.strip(b"\0")}

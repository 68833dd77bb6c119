"""Seeded crashes of a store: whatever is lost behind the last fdatasync, what survived is there, and nothing else.

Each seed runs a workload, crashes, recovers, goes on with the recovered store, and so on. A crash is a copy of the directory
with damaged tails: pages that a dying process did not write (kill -9), sectors that never reached the disk (power loss), or
garbage in their place. The seed is part of the test's name: `pytest "tests/faults/test_crash_recovery.py" -k "seed17-"`.
"""

import random
import shutil
from pathlib import Path

import pytest
from attrs import define, field

from tests.store.records import put_message, record_size
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.record.properties import tags_code

LOG_FILE, QUEUE_FILE = 1 << 14, 400
SECTOR = 512
SEEDS = range(16)
CRASHES = ("kill", "power", "garbage")
TAGS = ("", "TagA", "polygenelubricants", "长标签")


@define(frozen=True)
class Record:
    """A record, or a blank, as it was written."""

    phy_offset: int
    raw: bytes
    queue: tuple[str, int] | None  # None: a blank, of which only the first 8 bytes count.
    tags_code: int = 0

    @property
    def end(self) -> int:
        return self.phy_offset + len(self.raw)

    @property
    def queue_offset(self) -> int:
        return int.from_bytes(self.raw[20:28])


@define
class Workload:
    """A store under random use, and everything that is in its log."""

    rng: random.Random
    root: Path
    clock: list[int]
    store: MessageStore = field(init=False)
    records: list[Record] = field(factory=list)
    durable: dict[str, int] = field(
        factory=dict
    )  # By path: what no crash can take, besides what the store itself flushed.

    def open(self) -> None:
        sizes = {"mapped_file_size_commit_log": LOG_FILE, "mapped_file_size_consume_queue": QUEUE_FILE}
        self.store = MessageStore(StoreConfig(root=self.root, **sizes), StoreHooks(now_ms=lambda: self.clock[0]))
        self.store.load()

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock[0] += self.rng.choice([0, 1, 20, 900, 5000])
            step = self.rng.random()
            if step < 0.7:
                self.put()
            elif step < 0.8:
                self.store.dispatch_pending()
            elif step < 0.9:
                await self.store.flusher.flush()
            elif step < 0.95:
                await self.store._parts.queue_flusher.flush(thorough=self.rng.random() < 0.5)
            elif step < 0.97:
                await self.store.close()
                self.open()
                self.check()

    def put(self) -> None:
        """A batch to a few queues; the model learns from the log itself what was written."""
        rng = self.rng
        messages = []
        for _ in range(rng.choice([1, 1, 2, 5, 12])):
            tags = rng.choice(TAGS)
            properties = f"TAGS\x01{tags}\x02" if tags else ""
            properties += f"UNIQ_KEY\x01{rng.random()}{'x' * rng.choice([0, 0, 700])}"
            body = rng.randbytes(rng.choice([0, 5, 100, 1500, 4000]))
            topic, queue_id = rng.choice(["T1", "T2"]), rng.randrange(2)
            messages.append(put_message(topic, body, queue_id=queue_id, properties=properties.encode()))
        end = self.store.max_offset
        for message, result in zip(messages, self.store.put(messages, together=rng.random() < 0.3), strict=True):
            assert result.size == record_size(message)
            self.note_blank(end, result.phy_offset)
            raw = bytes(self.store.commit_log.read(result.phy_offset, result.size))
            self.records.append(Record(result.phy_offset, raw, (message.topic, message.queue_id), message.tags_code))
            end = result.end_offset

    def note_blank(self, end: int, phy_offset: int) -> None:
        if end < phy_offset:
            self.records.append(
                Record(end, bytes(self.store.commit_log.read(end, 8)).ljust(phy_offset - end, b"\0"), None)
            )

    async def crash(self, kind: str) -> "Workload":
        """A damaged copy of the directory, with what should still be found in it."""
        root = self.root.with_name(self.root.name + "+")
        shutil.copytree(self.root, root)
        self.damage_log(root, kind)
        if kind != "kill":
            self.damage_queues(root, kind)
        queues = [queue.files for _, _, queue in self.store.queues()]
        files = [file for files in (self.store.commit_log.files, *queues) for file in files.files]
        durable = {str(file.path.relative_to(self.root)): self.safe(file) for file in files}
        self.store._release()
        records = surviving(self.records, root / "commitlog")
        return Workload(self.rng, root, self.clock, records=records, durable=durable)

    def log_is_durable(self) -> None:
        """What is read after a power loss comes from the disk."""
        for file in self.store.commit_log.files.files:
            self.durable[str(file.path.relative_to(self.root))] = file.wrote

    def safe(self, file: MappedFile) -> int:
        """Up to where a file is on disk, whatever happens."""
        return max(file.flushed, min(file.wrote, self.durable.get(str(file.path.relative_to(self.root)), 0)))

    def damage_log(self, root: Path, kind: str) -> None:
        files = self.store.commit_log.files.files
        if kind == "kill":  # The process may have died inside its last write, between two pages.
            if self.rng.random() < 0.5 and files and self.records:
                begin = self.records[-1].phy_offset % LOG_FILE
                self.lose(root, files[-1], begin, 4096, kind)
            return
        for file in files:
            if self.safe(file) < file.wrote:
                self.lose(root, file, self.safe(file), SECTOR, kind)

    def lose(self, root: Path, file: MappedFile, begin: int, step: int, kind: str) -> None:
        """Lose the bytes of a file from a random place behind `begin` on."""
        at = self.rng.randrange(begin, file.wrote + 1)
        at = min(-(-at // step) * step, file.wrote)
        with (root / "commitlog" / file.path.name).open("r+b") as copy:
            if kind == "garbage":
                at = self.before_properties(file.start + at) - file.start
                garbage = self.rng.randbytes(file.wrote - at)
            else:
                garbage = bytes(file.wrote - at)
            copy.seek(at)
            copy.write(garbage)

    def before_properties(self, at: int) -> int:
        """Nothing in a record vouches for its properties: garbage starts before they do."""
        for record in self.records:
            if record.phy_offset <= at < record.end and record.queue:
                body_size = int.from_bytes(record.raw[84:88])
                return min(at, record.phy_offset + 88 + body_size)
        return at

    def damage_queues(self, root: Path, kind: str) -> None:
        for _, _, queue in self.store.queues():
            for file in queue.files.files:
                if self.safe(file) == file.wrote:
                    continue
                at = self.rng.randrange(self.safe(file), file.wrote + 1)
                with (root / file.path.relative_to(self.root)).open("r+b") as copy:
                    copy.seek(at)
                    lost = file.wrote - at
                    copy.write(self.rng.randbytes(lost) if kind == "garbage" else bytes(lost))

    def check(self) -> None:
        """The store holds exactly what the model holds."""
        store = self.store
        assert store.max_offset == (self.records[-1].end if self.records else 0)
        units: dict[tuple[str, int, int], tuple[int, int, int]] = {}
        for record in self.records:
            if record.queue is not None:
                assert store.commit_log.read(record.phy_offset, len(record.raw)) == record.raw
                units[*record.queue, record.queue_offset] = (record.phy_offset, len(record.raw), record.tags_code)
        found = {
            (topic, queue_id, n): unit
            for topic, queue_id, queue in store.queues()
            for n in range(queue.min_offset, queue.max_offset)
            if not (unit := queue.unit(n)).is_blank  # Which has the number of a message that is lost.
        }
        assert found == units
        assert store.dispatched_offset == store.max_offset
        for path in (*(self.root / "commitlog").iterdir(), *(self.root / "consumequeue").rglob("0*")):
            self.check_nothing_behind(path)

    def check_nothing_behind(self, path: Path) -> None:
        """What was cut is gone from the disk, too: it could be taken for new data after the next crash."""
        if path.is_file():
            queue = self.store.commit_log.files
            if path.parent.name != "commitlog":
                queue = self.store.queue(path.parent.parent.name, int(path.parent.name)).files
            file = queue.file_at(int(path.name))
            assert file is not None
            assert path.read_bytes()[file.wrote :].count(0) == file.size - file.wrote


def surviving(records: list[Record], directory: Path) -> list[Record]:
    """All messages that are what was written, wherever others are not, and a blank behind the last one."""
    files = {int(path.name): path.read_bytes() for path in directory.iterdir()}
    kept: list[Record] = []
    was_kept = False
    for record in records:
        start = record.phy_offset - record.phy_offset % LOG_FILE
        at = record.phy_offset - start
        raw = record.raw if record.queue else record.raw[:8]
        is_kept = files[start][at : at + len(raw)] == raw
        if is_kept and (record.queue or was_kept):
            kept.append(record)
        was_kept = is_kept
    return kept


@pytest.mark.parametrize("kind", CRASHES)
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
async def test_what_survived_a_crash_is_there_and_nothing_else(tmp_path, seed, kind):
    assert tags_code(TAGS[2]) < 0
    workload = Workload(random.Random(f"{seed}{kind}"), tmp_path / "store", [1_700_000_000_000])
    workload.open()
    for _ in range(4):
        await workload.run(steps=workload.rng.randrange(25))
        before = len(workload.records)
        workload = await workload.crash(kind)
        assert kind != "kill" or len(workload.records) >= before - 12
        workload.open()
        if kind != "kill":
            workload.log_is_durable()
        workload.check()
        workload.store._release()  # Opened twice, without a clean stop between.
        workload.open()
        workload.check()
    await workload.store.close()
    workload.open()
    workload.check()
    workload.store._release()


async def test_cut_bytes_never_come_back(tmp_path):
    """A tail of old messages is cut, shorter data written over its place, and the power fails again at once."""
    workload = Workload(random.Random(1), tmp_path / "store", [1_700_000_000_000])
    size = record_size(put_message(body=bytes(500)))
    path = workload.root / "commitlog" / f"{0:020}"
    workload.open()
    workload.store.put([put_message(body=bytes([n]) * 500) for n in range(20)])
    workload.store._release()
    old = path.read_bytes()
    path.write_bytes(old[: 2 * size].ljust(LOG_FILE, b"\0"))
    workload.open()
    workload.clock[0] += 60_000
    workload.store.put([put_message(body=bytes(500))])
    workload.store._release()
    path.write_bytes(path.read_bytes()[: 3 * size] + b"damage" + old[3 * size + 6 :])  # RocketMQ clears nothing.
    for count in (3, 4):
        workload.open()
        assert workload.store.max_offset == count * size
        assert workload.store.queue("T1", 0).max_offset == count
        workload.store.put([put_message(body=bytes(500))])  # Ends just where an old message was.
        workload.store._release()

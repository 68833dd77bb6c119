"""Pairs of store directories with one planted fault, and the expected findings.

The pairs are captured stores of RocketMQ, a master's and its slave's, and two of twinlog after a clean stop, which have digests
and small files. `FAULTS` is the table; `SOUND` are pairs without a fault.
"""

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from struct import Struct
from tempfile import mkdtemp
from typing import Any

import attrs
import trio
from attrs import field, frozen

from tests.store import golden
from tests.store.indexes import until_caught_up
from tests.store.records import put_message
from twinlog.cluster.pipeline.audit.completeness import CUT_AT_END, CUT_BEHIND_END, CUT_BEHIND_RECORDS, CUT_WITH_RECORDS
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.epoch_file import FIRST, EpochEntry, save_epochs
from twinlog.store.hooks import StoreHooks
from twinlog.store.index.layout import HEADER, ITEM, SLOT
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.index_view import open_index
from twinlog.store.offline.verify.config_check import parse_config
from twinlog.store.offline.walk import Window, walk_log
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.scan import DispatchEntry

FILE_SIZE, QUEUE_FILE_SIZE = golden.FILE_SIZE, 400  # Two blocks; 20 units.
NOW, MESSAGES = 1_700_000_000_000, 500
I64 = Struct(">q")
MASTER, SLAVE = "master", "slave"
C = FindingClass


@frozen
class Pair:
    """Two directories of one log."""

    master: Path
    slave: Path

    def __getitem__(self, name: str) -> Path:
        return self.master if name == MASTER else self.slave


@frozen
class Expected:
    """An expected finding; a field that is None may have any value."""

    cls: FindingClass
    member: str
    offset: int | None = None
    more: dict[str, Any] = field(factory=dict)

    def is_met_by(self, finding: AuditFinding) -> bool:
        """True if the finding matches."""
        told = attrs.asdict(finding)
        wanted = {"cls": self.cls, "member": self.member, **self.more}
        wanted |= {"offset": self.offset} if self.offset is not None else {}
        return all(told[name] == value for name, value in wanted.items())


@frozen
class Fault:
    """`plant` changes a pair and returns the expected findings."""

    name: str
    store: str
    plant: Callable[[Pair], list[Expected]]

    def __str__(self) -> str:
        return f"{self.store}: {self.name}"


# Making pairs


def make_pair(store: str, to: Path) -> Pair:
    """`store`: a version of RocketMQ, or "own"."""
    if store == "own":
        return Pair(*(Path(shutil.copytree(_own(), to / name)) for name in (MASTER, SLAVE)))
    return Pair(golden.unpack(store, MASTER, to), golden.unpack(store, SLAVE, to))


@cache
def _own() -> Path:
    """Built once for each process."""
    root = Path(mkdtemp(prefix="twinlog-planting-")) / "own"
    fill(root, 0, MESSAGES)
    return root


def fill(root: Path, first: int, count: int, *, seed: int = 0, late_ms: int = 0) -> None:
    """Messages with keys and tags in two queues of two topics; the store is opened for it, and stopped in order."""
    clock = [NOW + first * 1000 + late_ms]
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": QUEUE_FILE_SIZE}
    config = StoreConfig(
        root=root, broker_role=BrokerRole.ASYNC_MASTER, max_hash_slot_num=400, max_index_num=1600, **sizes
    )
    store = MessageStore(config, StoreHooks(now_ms=lambda: clock[0]))
    store.load()
    for number in range(first, first + count):
        clock[0] += 1000
        properties = f"KEYS\x01k{seed}-{number}\x02UNIQ_KEY\x01{seed:04}{number:08}\x02TAGS\x01Tag{number % 3}"
        body = bytes([65 + (seed + number) % 26]) * (400 + number * 211 % 800)
        store.put([put_message(f"T{number % 2}", body, queue_id=number // 2 % 2, properties=properties.encode())])
    store.dispatch_pending()
    trio.run(_index_and_close, store)


async def _index_and_close(store: MessageStore) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.index.run)
        with trio.fail_after(20):
            await until_caught_up(store.index)
        nursery.cancel_scope.cancel()
    await store.close()


# Reading and changing one


def entries(root: Path) -> list[DispatchEntry]:
    """The records of a log."""
    with StoreDirectory.open(root) as directory:
        windows = [piece for piece in walk_log(directory.log) if isinstance(piece, Window)]
    return [entry for window in windows for entry in window.entries]


def record(root: Path, number: int) -> DispatchEntry:
    """The next record from `number` on that is in a queue and has a body, tags and keys."""
    return next(
        entry
        for entry in entries(root)[number:]
        if not entry.sys_flag & 0xC and b"TAGS" in entry.properties and not entry.topic.startswith(("%", "RMQ", "SCH"))
    )


def read_log(root: Path, offset: int, size: int) -> bytes:
    """Bytes of the log, within one file."""
    with _log_file(root, offset).open("rb") as file:
        file.seek(offset % FILE_SIZE)
        return file.read(size)


def write_log(root: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of the log, across files; no file grows."""
    while data:
        room = FILE_SIZE - offset % FILE_SIZE
        overwrite(_log_file(root, offset), offset % FILE_SIZE, data[:room])
        offset, data = offset + len(data[:room]), data[room:]


def _log_file(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset - offset % FILE_SIZE:020d}"


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(root: Path, offset: int, bit: int = 1) -> None:
    """Change one bit of the log."""
    write_log(root, offset, bytes([read_log(root, offset, 1)[0] ^ bit]))


def unit_place(root: Path, entry: DispatchEntry) -> tuple[Path, int]:
    """File and position of a record's unit."""
    directory = root / "consumequeue" / entry.topic / str(entry.queue_id)
    size = next(directory.iterdir()).stat().st_size
    at = entry.queue_offset * UNIT.size
    return directory / f"{at - at % size:020d}", at % size


def log_end(root: Path) -> int:
    """End of the last record."""
    last = entries(root)[-1]
    return last.phy_offset + last.size


# Faults of the log


def flipped(part: str, member: str = SLAVE, number: int = 40, *, cls: FindingClass = C.BIT_ROT, bit: int = 1):
    """One bit of a part of a record."""

    def plant(pair: Pair) -> list[Expected]:
        entry = record(pair.master, number)
        at = entry.phy_offset + position_in(read_log(pair.master, entry.phy_offset, entry.size), part)
        flip(pair[member], at, bit)
        good = None if cls is C.DIFFERS else SLAVE if member == MASTER else MASTER
        found = SLAVE if cls is C.DIFFERS else member
        return [
            Expected(cls, found, at, {"end": at + 1, "good": good, "record": entry.phy_offset, "topic": entry.topic})
        ]

    return plant


def position_in(raw: bytes, part: str) -> int:
    """Position of a part of a record with IPv4 hosts."""
    fixed = {
        "length": 2,
        "low length": 3,
        "magic": 5,
        "CRC": 9,
        "queue id": 15,
        "queue offset": 27,
        "place": 34,
        "born": 47,
    }
    body_end = 88 + int.from_bytes(raw[84:88])
    if part in fixed:
        return fixed[part]
    if part == "tags":
        return raw.rindex(b"TAGS\x01") + 5
    return {"body": 88 + (body_end - 88) // 2, "topic": body_end + 1, "key": raw.rindex(b"KEYS\x01") + 5}[part]


def last_record_flipped(pair: Pair) -> list[Expected]:
    """The end of the log is not where it seems to be."""
    entry = entries(pair.slave)[-1]
    at = entry.phy_offset + 90
    flip(pair.slave, at)
    return [Expected(C.BIT_ROT, SLAVE, at, {"end": at + 1, "good": MASTER})]


def first_of_file_flipped(pair: Pair) -> list[Expected]:
    """The first record behind a file boundary: its length."""
    entry = next(entry for entry in entries(pair.master) if entry.phy_offset == FILE_SIZE)
    flip(pair.slave, entry.phy_offset + 2)
    return [Expected(C.BIT_ROT, SLAVE, entry.phy_offset + 2, {"good": MASTER, "record": FILE_SIZE})]


def blank_flipped(pair: Pair) -> list[Expected]:
    """The size in the blank at the end of a file."""
    last = [entry for entry in entries(pair.master) if entry.phy_offset < FILE_SIZE][-1]
    at = last.phy_offset + last.size + 1
    flip(pair.slave, at)
    return [Expected(C.BIT_ROT, SLAVE, at, {"end": at + 1, "good": MASTER})]


def last_byte_of_file_flipped(pair: Pair) -> list[Expected]:
    """A byte outside all records that is covered by a digest."""
    flip(pair.slave, FILE_SIZE - 1)
    return [Expected(C.BIT_ROT, SLAVE, FILE_SIZE - 1, {"end": FILE_SIZE, "good": MASTER})]


def both_flipped(pair: Pair) -> list[Expected]:
    """Each member has damage of its own."""
    one, other = (record(pair.master, number).phy_offset + 90 for number in (20, 120))
    flip(pair.master, one)
    flip(pair.slave, other)
    return [
        Expected(C.BIT_ROT, MASTER, one, {"end": one + 1, "good": SLAVE}),
        Expected(C.BIT_ROT, SLAVE, other, {"end": other + 1, "good": MASTER}),
    ]


def hole(pair: Pair) -> list[Expected]:
    """A page of zeros over some records."""
    start = record(pair.master, 60).phy_offset + 90  # In a body: no zeros there.
    end = next(entry.phy_offset for entry in entries(pair.master) if entry.phy_offset > start + 4096) + 92
    write_log(pair.slave, start, bytes(end - start))
    return [Expected(C.HOLE, SLAVE, start, {"end": end, "good": MASTER})]


def hole_across_files(pair: Pair) -> list[Expected]:
    """Zeros over the end of one file and the beginning of the next."""
    start = [entry for entry in entries(pair.master) if entry.phy_offset < FILE_SIZE][-2].phy_offset + 90
    end = next(entry.phy_offset for entry in entries(pair.master) if entry.phy_offset > FILE_SIZE + 2048) + 92
    write_log(pair.master, start, bytes(end - start))
    return [
        Expected(C.HOLE, MASTER, start, {"good": SLAVE}),
        Expected(C.HOLE, MASTER, FILE_SIZE, {"end": end, "good": SLAVE}),
    ]


def file_missing(pair: Pair) -> list[Expected]:
    """One in the middle."""
    _log_file(pair.slave, FILE_SIZE).unlink()
    return [Expected(C.HOLE, SLAVE, FILE_SIZE, {"end": 2 * FILE_SIZE, "good": MASTER})]


def file_cut(pair: Pair) -> list[Expected]:
    """One in the middle is too short."""
    start = next(entry.phy_offset for entry in entries(pair.master) if entry.phy_offset > FILE_SIZE + 70_000) + 90
    os.truncate(_log_file(pair.slave, start), start % FILE_SIZE)
    return [
        Expected(C.HOLE, SLAVE, start, {"end": 2 * FILE_SIZE, "good": MASTER}),
    ]


def last_file_cut(behind: int):
    """The last file ends so many bytes behind the last record: no record is lost, and RocketMQ does not open it."""

    def plant(pair: Pair) -> list[Expected]:
        end = log_end(pair.slave)
        path = _log_file(pair.slave, end)
        os.truncate(path, end % FILE_SIZE + behind)
        what = CUT_BEHIND_END if behind else CUT_AT_END
        more = {"end": -(-end // FILE_SIZE) * FILE_SIZE, "what": what, "file": f"commitlog/{path.name}"}
        return [Expected(C.TRUNCATED, SLAVE, end + behind, more)]

    return plant


def last_files_cut_with_records(pair: Pair) -> list[Expected]:
    """On both members alike: only queues and index of each know that there were more records."""
    at = entries(pair.slave)[-5].phy_offset
    for root in (pair.master, pair.slave):
        os.truncate(_log_file(root, at), at % FILE_SIZE)
    return [Expected(C.TRUNCATED, member, at, {"what": CUT_WITH_RECORDS}) for member in (MASTER, SLAVE)]


def cut_in_unused_rest(pair: Pair) -> list[Expected]:
    """A file in the middle ends behind the head of its blank; unrelated damage elsewhere does not hide it."""
    at = _rest_of_first_file(pair) + 20
    os.truncate(_log_file(pair.slave, 0), at)
    flip(pair.slave, damaged := record(pair.slave, 200).phy_offset + 95)
    return [
        Expected(C.TRUNCATED, SLAVE, at, {"end": FILE_SIZE, "what": CUT_BEHIND_RECORDS}),
        Expected(C.BIT_ROT, SLAVE, damaged, {"good": MASTER}),
    ]


def cut_before_unused_rest(pair: Pair) -> list[Expected]:
    """A file in the middle ends exactly behind its last record: the blank that leads to the next file is lost."""
    at = _rest_of_first_file(pair)
    os.truncate(_log_file(pair.slave, 0), at)
    return [Expected(C.HOLE, SLAVE, None, {"end": FILE_SIZE, "good": MASTER})]


def _rest_of_first_file(pair: Pair) -> int:
    last = [entry for entry in entries(pair.master) if entry.phy_offset < FILE_SIZE][-1]
    return last.phy_offset + last.size


def index_gone(pair: Pair) -> list[Expected]:
    """The slave has no index at all."""
    shutil.rmtree(pair.slave / "index")
    return [Expected(C.INDEX, SLAVE, None, {"good": MASTER, "file": "index"})]


def shifted(pair: Pair) -> list[Expected]:
    """Bytes too many within a file: what follows lies 64 bytes too far behind."""
    start = next(entry.phy_offset for entry in entries(pair.master) if entry.phy_offset > FILE_SIZE + 30_000)
    path = _log_file(pair.slave, start)
    data, at = path.read_bytes(), start % FILE_SIZE
    path.write_bytes((data[:at] + bytes(64) + data[at:])[:FILE_SIZE])
    return [Expected(C.SHIFTED, SLAVE, start, {"good": MASTER})]


def file_of_another_place(pair: Pair) -> list[Expected]:
    """A file under the name of the next one."""
    shutil.copyfile(_log_file(pair.slave, 0), _log_file(pair.slave, FILE_SIZE))
    return [Expected(C.SHIFTED, SLAVE, FILE_SIZE, {"end": 2 * FILE_SIZE, "good": MASTER})]


def swapped_neighbours(pair: Pair) -> list[Expected]:
    """Two records side by side, of different sizes."""
    all_of_them = entries(pair.master)
    one, other = next(
        (a, b) for a, b in pairwise(all_of_them[50:]) if a.phy_offset + a.size == b.phy_offset and a.size != b.size
    )
    both = [read_log(pair.master, entry.phy_offset, entry.size) for entry in (other, one)]
    write_log(pair.slave, one.phy_offset, b"".join(both))
    return [Expected(C.SWAPPED, SLAVE, one.phy_offset, {"end": other.phy_offset + other.size, "good": MASTER})]


def swapped_far_apart(pair: Pair) -> list[Expected]:
    """Two records of one size."""
    one = record(pair.master, 30)
    other = next(
        entry for entry in entries(pair.master)[40:] if entry.size == one.size and entry.phy_offset > one.phy_offset
    )
    for here, there in ((one, other), (other, one)):
        write_log(pair.slave, here.phy_offset, read_log(pair.master, there.phy_offset, there.size))
    return [
        Expected(C.SWAPPED, SLAVE, entry.phy_offset, {"end": entry.phy_offset + entry.size, "good": MASTER})
        for entry in (one, other)
    ]


def tail_cut(member: str, number: int, into: int = 0):
    """Zeros from a record, or from the middle of one, to the end."""

    def plant(pair: Pair) -> list[Expected]:
        entry = entries(pair[member])[number]
        end = log_end(pair[member])
        write_log(pair[member], entry.phy_offset + into, bytes(end - entry.phy_offset - into))
        good = SLAVE if member == MASTER else MASTER
        return [Expected(C.TRUNCATED, member, entry.phy_offset, {"end": end, "good": good})]

    return plant


def behind(pair: Pair) -> list[Expected]:
    """No fault: the slave has not received the last messages."""
    start = log_end(pair.slave)
    fill(pair.master, MESSAGES, 7)
    return [Expected(C.LAG, SLAVE, start, {"end": log_end(pair.master), "good": MASTER})]


def diverged(pair: Pair) -> list[Expected]:
    """Both accepted messages separately; there are no epochs."""
    start = log_end(pair.slave)
    fill(pair.master, MESSAGES, 20)
    fill(pair.slave, MESSAGES + 7, 30, seed=1, late_ms=500)
    first = entries(pair.slave)[MESSAGES]
    assert first.phy_offset == start
    more = {"good": None, "epoch": None, "since_ms": first.store_timestamp, "topic": first.topic}
    return [Expected(C.DIVERGENT, SLAVE, start, {**more, "end": log_end(pair.slave)})]


def diverged_in_step(pair: Pair) -> list[Expected]:
    """Records of equal sizes, as a load test sends."""
    start = log_end(pair.slave)
    fill(pair.master, MESSAGES, 20)
    fill(pair.slave, MESSAGES, 20, seed=1, late_ms=500)
    return [Expected(C.DIVERGENT, SLAVE, start, {"good": None, "end": log_end(pair.slave)})]


def diverged_with_epochs(pair: Pair) -> list[Expected]:
    """The slave became the master, and the old one continued for a while."""
    start = log_end(pair.slave)
    old = EpochEntry(epoch=1, winner="127.0.0.1:10911", start_offset=0, at_ms=NOW, kind="failover")
    new = EpochEntry(epoch=2, winner="127.0.0.1:20911", start_offset=start, at_ms=NOW + 9, kind="failover")
    fill(pair.master, MESSAGES, 5)
    fill(pair.slave, MESSAGES + 7, 30, seed=1, late_ms=500)
    save_epochs(pair.master / "twinlog", [FIRST, old])
    save_epochs(pair.slave / "twinlog", [FIRST, old, new])
    first = entries(pair.master)[MESSAGES]
    more = {"good": SLAVE, "epoch": 1, "since_ms": first.store_timestamp, "end": log_end(pair.master)}
    return [Expected(C.DIVERGENT, MASTER, start, more)]


# Faults beside the log


def unit_changed(member: str, number: int, change: Callable[[int, int, int], tuple[int, int, int]]):
    """A unit of a queue."""

    def plant(pair: Pair) -> list[Expected]:
        entry = record(pair.master, number)
        path, at = unit_place(pair[member], entry)
        overwrite(path, at, UNIT.pack(*change(*UNIT.unpack_from(path.read_bytes(), at))))
        return [_of_queue(member, entry)]

    return plant


def _of_queue(member: str, entry: DispatchEntry) -> Expected:
    more = {"topic": entry.topic, "queue_id": entry.queue_id, "queue_offset": entry.queue_offset}
    return Expected(C.QUEUE, member, entry.phy_offset, more)


def first_unit_of_file_lost(pair: Pair) -> list[Expected]:
    """Behind a boundary of the queue's files."""
    entry = next(entry for entry in entries(pair.master) if entry.queue_offset == QUEUE_FILE_SIZE // UNIT.size)
    path, at = unit_place(pair.slave, entry)
    assert at == 0
    overwrite(path, at, bytes(UNIT.size))
    return [_of_queue(SLAVE, entry)]


def last_unit_leads_far(pair: Pair) -> list[Expected]:
    """As if the log had gone on; it did not."""
    entry = entries(pair.slave)[-1]
    path, at = unit_place(pair.slave, entry)
    overwrite(path, at, I64.pack(entry.phy_offset + (1 << 40)))
    return [_of_queue(SLAVE, entry)]


def slot_changed(member: str):
    """A slot of the index that names an older item."""

    def plant(pair: Pair) -> list[Expected]:
        path, slot, _ = _used_slot(pair[member])
        overwrite(path, HEADER.size + slot * SLOT.size, SLOT.pack(0))
        return [Expected(C.INDEX, member, None, {"file": f"index/{path.name}"})]

    return plant


def item_changed(pair: Pair) -> list[Expected]:
    """An item of the index that leads to no record."""
    path, _, position = _used_slot(pair.slave)
    key_hash, phy_offset, seconds, before = ITEM.unpack_from(path.read_bytes(), position)
    overwrite(path, position, ITEM.pack(key_hash, phy_offset + 1, seconds, before))
    return [
        Expected(C.INDEX, SLAVE, phy_offset + 1, {"file": f"index/{path.name}"}),
        Expected(C.INDEX, SLAVE, phy_offset),
    ]


def _used_slot(root: Path) -> tuple[Path, int, int]:
    """A file of the index, one of its slots and the position of the item that it names: not the first one, and not the last."""
    with StoreDirectory.open(root) as directory:
        view = open_index(directory)[0]
        raw = view.file.path.read_bytes()
        for slot in range(view.layout.slots):
            (item,) = SLOT.unpack_from(raw, HEADER.size + slot * SLOT.size)
            if 1 < item < view.end - 2:
                return view.file.path, slot, view.layout.item_position(item)
    raise AssertionError("no slot is used")


def edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change a file of the configuration."""
    value = parse_config(path.read_bytes())
    edit(value)
    path.write_text(json.dumps(value))


def _a_queue(table: dict[str, Any]) -> tuple[str, str]:
    """One in consumerOffset.json: its topic and group, and its number."""
    name = next(name for name in sorted(table["offsetTable"]) if name.startswith("TopicA@"))
    return name, sorted(table["offsetTable"][name])[0]


def consumed_ahead(pair: Pair) -> list[Expected]:
    """The slave's offset is higher than its master's, which was set back."""
    path = pair.master / "config" / "consumerOffset.json"
    found: list[Expected] = []

    def edit(table: dict[str, Any]) -> None:
        name, queue_id = _a_queue(table)
        offset = table["offsetTable"][name][queue_id]
        table["offsetTable"][name][queue_id] = offset - 3
        found.append(
            Expected(C.OFFSETS, SLAVE, None, {"topic": "TopicA", "queue_id": int(queue_id), "queue_offset": offset})
        )

    edit_json(path, edit)
    return found


def consumed_beyond(member: str):
    """An offset behind the end of its queue."""

    def plant(pair: Pair) -> list[Expected]:
        def edit(table: dict[str, Any]) -> None:
            name, queue_id = _a_queue(table)
            table["offsetTable"][name][queue_id] += 100_000

        edit_json(pair[member] / "config" / "consumerOffset.json", edit)
        return [Expected(C.OFFSETS, member, None, {"topic": "TopicA", "file": "config/consumerOffset.json"})]

    return plant


def topic_changed(pair: Pair) -> list[Expected]:
    """The slave lets nobody write."""

    def edit(table: dict[str, Any]) -> None:
        table["topicConfigTable"]["TopicA"]["perm"] = 4

    edit_json(pair.slave / "config" / "topics.json", edit)
    return [Expected(C.CONFIG, SLAVE, None, {"topic": "TopicA", "file": "config/topics.json"})]


def config_cut(pair: Pair) -> list[Expected]:
    """A file of the configuration that ends early."""
    path = pair.slave / "config" / "subscriptionGroup.json"
    os.truncate(path, path.stat().st_size // 2)
    return [Expected(C.CONFIG, SLAVE, None, {"file": "config/subscriptionGroup.json"})]


FAULTS = (
    *(Fault(f"a bit of a body, {version}", version, flipped("body")) for version in golden.VERSIONS),
    Fault("a bit of a body on the master", "4.9.7", flipped("body", MASTER)),
    Fault("a bit of a length", "4.9.7", flipped("length")),
    Fault("the lowest bit of a length", "5.3.3", flipped("low length", MASTER)),
    Fault("a bit of a magic", "5.3.3", flipped("magic")),
    Fault("a bit of a CRC", "4.9.7", flipped("CRC")),
    Fault("a bit of a place", "4.9.7", flipped("place", MASTER)),
    Fault("a bit of a queue offset", "4.9.7", flipped("queue offset")),
    Fault("a bit of a queue id", "5.3.3", flipped("queue id", MASTER)),
    Fault("a bit of a topic", "4.9.7", flipped("topic")),
    Fault("a bit of the tags", "4.9.7", flipped("tags", MASTER)),
    Fault("a bit of a time, without a digest", "4.9.7", flipped("born", cls=C.DIFFERS)),
    Fault("a bit of a time on the master, without a digest", "5.3.3", flipped("born", MASTER, cls=C.DIFFERS)),
    Fault("a bit of a time, with a digest", "own", flipped("born")),
    Fault("a bit of a key on the master, with a digest", "own", flipped("key", MASTER)),
    Fault("a bit of the last record", "5.3.3", last_record_flipped),
    Fault("a bit of the first record of a file", "4.9.7", first_of_file_flipped),
    Fault("a bit of a blank", "4.9.7", blank_flipped),
    Fault("a bit of the last byte of a file", "own", last_byte_of_file_flipped),
    Fault("a bit on each", "own", both_flipped),
    Fault("a hole", "own", hole),
    Fault("a hole across files, on the master", "own", hole_across_files),
    Fault("a file is missing", "own", file_missing),
    Fault("a file is too short", "own", file_cut),
    *(Fault("the last file is cut at the log's end", store, last_file_cut(0)) for store in ("own", "4.9.7")),
    *(Fault("the last file is cut behind the log's end", store, last_file_cut(1000)) for store in ("own", "4.9.7")),
    *(Fault("a file is cut in its unused rest", store, cut_in_unused_rest) for store in ("own", "4.9.7")),
    *(Fault("a file is cut before its unused rest", store, cut_before_unused_rest) for store in ("own", "4.9.7")),
    Fault("the index is gone", "4.9.7", index_gone),
    Fault("records shifted in a file", "own", shifted),
    Fault("a file of another place", "own", file_of_another_place),
    Fault("neighbours swapped", "own", swapped_neighbours),
    Fault("records swapped", "4.9.7", swapped_far_apart),
    Fault("tail cut at a record", "4.9.7", tail_cut(SLAVE, -30)),
    Fault("tail cut in a record", "own", tail_cut(SLAVE, -5, 120)),
    Fault("tail of the master cut", "5.3.3", tail_cut(MASTER, -3)),
    Fault("the slave is behind", "own", behind),
    Fault("divergent tails", "own", diverged),
    Fault("divergent tails of equal sizes", "own", diverged_in_step),
    Fault("divergent tails with epochs", "own", diverged_with_epochs),
    Fault("a unit is lost", "4.9.7", unit_changed(SLAVE, 60, lambda *_: (0, 0, 0))),
    Fault("a unit leads elsewhere", "5.3.3", unit_changed(MASTER, 60, lambda at, size, code: (at + 7, size, code))),
    Fault(
        "a unit with a wrong tag hash", "4.9.7", unit_changed(SLAVE, 70, lambda at, size, code: (at, size, code ^ 4))
    ),
    Fault("a unit with a wrong size", "own", unit_changed(MASTER, 70, lambda at, size, code: (at, size + 1, code))),
    Fault("the first unit of a file is lost", "own", first_unit_of_file_lost),
    Fault("the last unit leads far behind the log", "own", last_unit_leads_far),
    Fault("a wrong index slot", "4.9.7", slot_changed(SLAVE)),
    Fault("a wrong index slot on the master", "own", slot_changed(MASTER)),
    Fault("a wrong index item", "5.3.3", item_changed),
    Fault("the master's offset is set back", "4.9.7", consumed_ahead),
    Fault("an offset beyond its queue on the slave", "4.9.7", consumed_beyond(SLAVE)),
    Fault("an offset beyond its queue on the master", "4.9.7", consumed_beyond(MASTER)),
    Fault("a topic is another one", "4.9.7", topic_changed),
    Fault("a file of the configuration is cut", "5.3.3", config_cut),
)


# Pairs without a fault


def untouched(_: Pair) -> list[Expected]:
    return []


def begins_later(pair: Pair) -> list[Expected]:
    """Retention depends on each disk."""
    _log_file(pair.slave, 0).unlink()
    return []


SOUND = (
    *(Fault("equal", store, untouched) for store in (*golden.VERSIONS, "own")),
    Fault("the slave's log begins later", "4.9.7", begins_later),
    Fault("the slave's log begins later, with a digest", "own", begins_later),
)

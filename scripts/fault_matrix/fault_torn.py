"""What a power cut leaves of writes that nobody waited for: some sectors of the last pages, a new file without its bytes.

The disk's power is cut as in fault_disk.py; then sectors are put behind the end of what survived, as a disk might have written
them in any order. Nobody was told that they are safe, so they may be gone; what they are part of may never be read.
"""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from attrs import define, evolve, field

from scripts.fault_matrix.disks import mount
from scripts.fault_matrix.fault_disk import PowerCut
from scripts.fault_matrix.group import Member
from scripts.fault_matrix.workload import body_of
from tests.support.disk.compare import end_offset
from tests.support.process_group.process import Process
from twinlog.store.record.message import Message, body_crc, decode_message, encode_message
from twinlog.store.record.scan import scan_records

SECTOR, PAGE = 512, 4096
WRITE_MAX = 3 * PAGE  # Bytes that were under way.
UNIT = 20  # Bytes of a consume queue's unit.


def last_file(member: Member) -> tuple[Path, int]:
    """The log's file that holds its end, and where in it."""
    end = end_offset(member.commit_log)
    files = sorted(path for path in member.commit_log.iterdir() if path.name.isdigit() and int(path.name) <= end)
    return files[-1], end - int(files[-1].name)


def last_message(file: Path, end: int) -> Message | None:
    """The last record of a file; None: it has none yet."""
    raw = file.read_bytes()
    scan = scan_records(raw[:end], int(file.name), len(raw), check_crc=False, delays_ms=())
    entries = list(scan.entries)
    return decode_message(raw, entries[-1].phy_offset - int(file.name)) if entries else None


def torn(data: bytes, at: int, rng: random.Random) -> dict[int, bytes]:
    """Parts of a write at `at`, of which at least one sector never came; by place."""
    cuts = [at, *range((at // SECTOR + 1) * SECTOR, at + len(data), SECTOR), at + len(data)]
    parts = {begin: data[begin - at : end - at] for begin, end in pairwise(cuts)}
    # Heads that are there lead to bodies that are not.
    places = sorted(parts)[rng.randrange(2) if len(parts) > 1 else 0 :]
    lost = rng.sample(places, rng.randrange(1, rng.choice([1, len(places)]) + 1))
    return {begin: part for begin, part in parts.items() if begin not in lost}


def write(file: Path, parts: dict[int, bytes]) -> None:
    with file.open("r+b") as target:
        for place, part in parts.items():
            target.seek(place)
            target.write(part)


@define(eq=False)
class TornTail(PowerCut):
    """Behind the end lie sectors of one message, or of more."""

    count: ClassVar[int] = 0
    master: Member = field(init=False)
    ahead: Path = field(init=False)  # The last file of the longest log.
    written: dict[str, bytes] = field(init=False)  # The last files of the log, as far as anybody has them.

    def prepare(self) -> None:
        self.master = self.group.master()
        PowerCut.prepare(self)

    def pick(self) -> list[Member]:
        return [self.rng.choice([self.master, *self.group.members])]

    @property
    def text(self) -> str:
        return f"{PowerCut.text.fget(self)}, in the middle of writes"  # type: ignore[attr-defined]

    def heal(self) -> None:
        for victim in self.victims:
            mount(self.group.disks[victim.label], victim.home)
        notes = [f"{victim.label}: {tear(victim)}" for tear in self.tears() for victim in self.victims]
        self.group.write("note", text="; ".join(notes))
        for victim in self.victims:
            victim.note_boot()
            Process.start(victim)

    def tears(self) -> Sequence[Callable[[Member], str]]:
        """What happened to the writes under way."""
        longest = max(self.group.members, key=lambda each: end_offset(each.commit_log))
        self.ahead, end = last_file(longest)
        unsent = self._unsent(end) if self.master in self.victims else b""
        self.written = {
            file.name: file.read_bytes()[:end] + unsent if file.name == self.ahead.name else file.read_bytes()
            for file in sorted(longest.commit_log.iterdir())[-3:]
            if file.name.isdigit()
        }
        return (self.tear_log, self.tear_queue)

    def tear_log(self, member: Member) -> str:
        """Behind its end goes on what its master wrote, as others have it, and what nobody had from it yet."""
        file, end = last_file(member)
        data = self.written.get(file.name, b"")[end:]
        data = data[: self.rng.randrange(1, WRITE_MAX)]
        if data:
            write(file, torn(data, end, self.rng))
        return f"the log ends at {int(file.name) + end}, {len(data)} bytes behind it are torn"

    def _unsent(self, end: int) -> bytes:
        """Messages of producers that hear nothing of them, behind the longest log's end."""
        file, message = self.ahead, last_message(self.ahead, end)
        data = b""
        for ahead in range(1, self.rng.randrange(2, 5) if message is not None else 0):
            assert message is not None
            data += self._next(message, int(file.name) + end + len(data), ahead)
        return data if end + len(data) + 8 <= file.stat().st_size else b""

    def _next(self, message: Message, phy_offset: int, ahead: int) -> bytes:
        TornTail.count += 1
        value = f"torn-{self.group.faults}-{TornTail.count}"
        self.group.write_invoke(value, f"{message.topic}/broker-a/{message.queue_id}", 1_000_000 + TornTail.count)
        body, place = body_of(value), message.queue_offset + ahead
        return encode_message(
            evolve(message, body=body, body_crc=body_crc(body), phy_offset=phy_offset, queue_offset=place)
        )

    def tear_queue(self, member: Member) -> str:
        """Half a unit behind the end of a queue."""
        files = sorted((member.store / "consumequeue").glob("*/*/*"))
        file = self.rng.choice(files)
        raw = file.read_bytes()
        used = len(raw.rstrip(b"\0"))
        at = -(-used // UNIT) * UNIT
        if at + UNIT > len(raw):
            return f"queue file {file.name} is full"
        write(file, {at: end_offset(member.commit_log).to_bytes(8, "big")[: self.rng.randrange(1, 9)]})
        return f"half a unit at {at} of {file.parent.parent.name}/{file.parent.name}/{file.name}"


class TornTailOfAll(TornTail):
    """Each of them otherwise."""

    def pick(self) -> list[Member]:
        return list(self.group.members)


@define(eq=False)
class NewFileWithoutBytes(TornTail):
    """The log's next file has its name, and no bytes, or too few, or its sectors without those before."""

    @property
    def text(self) -> str:
        return f"{PowerCut.text.fget(self)}, just when the log's next file was made"  # type: ignore[attr-defined]

    def tears(self) -> Sequence[Callable[[Member], str]]:
        return (self.make_file,)

    def make_file(self, member: Member) -> str:
        file, _ = last_file(member)
        size = file.stat().st_size
        after = file.with_name(f"{int(file.name) + size:020d}")
        if after.exists() and any(after.read_bytes()):
            return f"{after.name} is in use"
        length = self.rng.choice([0, PAGE * self.rng.randrange(1, size // PAGE), size])
        after.write_bytes(bytes(length))
        return f"{after.name} has {length} of {size} bytes"

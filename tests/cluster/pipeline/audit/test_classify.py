"""Classification of differences between logs: cells, evidence, names. Logs are bytes in memory."""

import errno
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from attrs import evolve, field, frozen

from tests.cluster.pipeline.logs import message, records
from twinlog.cluster.pipeline.audit import findings, shapes
from twinlog.cluster.pipeline.audit.cells import CELL_MAX, LogPiece, cells, log_pieces, record_start
from twinlog.cluster.pipeline.audit.classify import classify, tails
from twinlog.cluster.pipeline.audit.compare import LogBounds
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass, settled
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.offline.file_series import FileReader, FileSeries, StoreFile
from twinlog.store.record.scan import DispatchEntry

FILE_SIZE = 1 << 14
C = FindingClass


class MemoryReader(FileReader):
    """Files that are bytes."""

    def __init__(self, data: bytes, refuses: range) -> None:
        super().__init__()
        self.data, self.refuses = data, refuses

    def read(self, path: Path, position: int, size: int) -> bytes:
        offset = int(path.name) + position
        if offset < self.refuses.stop and self.refuses.start < offset + size:
            raise OSError(errno.EIO, "bad sector")
        return self.data[int(path.name) + position :][:size]

    def is_clear_from(self, path: Path, position: int) -> bool:
        return not any(self.data[int(path.name) + position : int(path.name) + FILE_SIZE])


@frozen
class MemoryCopy:
    """A log from offset 0 on. `digested`, `queued`: what the member's own files say of any bytes, or records."""

    side: LogBounds
    data: bytes
    digested: bool | None = None
    queued: bool | None = None
    refuses: range = field(default=range(0))

    def read(self, offset: int, size: int) -> bytes:
        if offset < self.refuses.stop and self.refuses.start < offset + size:
            raise OSError(errno.EIO, "bad sector")
        return self.data[offset : offset + size].ljust(size, b"\0")

    def pieces(self, start: int, end: int) -> Iterator[LogPiece]:
        size, reader = self.side.file_size, MemoryReader(self.data, self.refuses)
        files = tuple(StoreFile(Path(str(at)), at, size) for at in range(0, len(self.data), size))
        return log_pieces(FileSeries(Path(), size, files, reader), start, end)

    def as_digested(self, start: int, end: int) -> bool | None:
        return self.digested

    def as_queued(self, entry: DispatchEntry) -> bool | None:
        return self.queued


def copy(name: str, data: bytes, *, epochs: Sequence[EpochEntry] = (), last: int | None = None, **more) -> MemoryCopy:
    end = len(data) if last is None else last
    padded = data.ljust(-(-len(data) // FILE_SIZE) * FILE_SIZE, b"\0")
    return MemoryCopy(LogBounds(name, 0, end, epochs=tuple(epochs), file_size=FILE_SIZE), padded, **more)


def log(count: int = 100, body: int = 300, first: int = 0, start: int = 0, late_ms: int = 0) -> tuple[bytes, list[int]]:
    """Messages, and where they lie."""
    given = [message(first + n, b"%d " % (first + n) * (body // 3)) for n in range(count)]
    given = [evolve(each, store_timestamp=each.store_timestamp + late_ms) for each in given]
    data, placed = records(given, start, FILE_SIZE)
    return data, [each.phy_offset for each in placed]


def flipped(data: bytes, *places: int) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 4
    return bytes(changed)


def brief(found: Sequence[AuditFinding]) -> list[tuple]:
    return [(each.cls, each.member, each.offset, each.good) for each in found]


DATA, PLACES = log()
END = len(DATA)


def test_equal_logs_have_no_findings():
    assert classify([copy("a", DATA), copy("b", DATA)], 0, END) == []


@pytest.mark.parametrize("start", [0, 1, PLACES[3], PLACES[3] + 1, PLACES[20], FILE_SIZE, FILE_SIZE + 9])
def test_the_walk_begins_at_a_record_before_any_byte(start):
    """Wherever a block begins, and however the bytes behind differ."""
    found = record_start([copy("a", DATA), copy("b", DATA[:start] + bytes(END - start))], start)
    assert found in (*PLACES, 0)
    assert found <= start


def test_cells_of_equal_logs_are_records():
    found = list(cells([copy("a", DATA), copy("b", DATA)], 0, END))
    assert {cell.start for cell in found} >= set(PLACES)
    assert [cell.end for cell in found[:-1]] == [cell.start for cell in found[1:]]


def test_a_cell_with_damage_goes_up_to_the_next_sound_record():
    bad = flipped(DATA, PLACES[5] + 1, PLACES[6] + 1)
    found = {cell.start: cell for cell in cells([copy("a", DATA), copy("b", bad)], 0, END)}
    assert found[PLACES[5]].end == PLACES[7]
    assert [piece.broken is None for piece in found[PLACES[5]].pieces["b"]] == [False]


def test_damage_without_end_is_cut_at_records():
    """So that memory is bounded by the size of a cell."""
    bad = DATA[: PLACES[2]] + bytes(END - PLACES[2])
    found = list(cells([copy("a", DATA), copy("b", bad)], 0, END, cell_max=1000))
    assert all(cell.end - cell.start < 2000 or cell.start >= PLACES[-1] for cell in found)
    assert not any(cell.is_open for cell in found)


def test_histories_without_a_place_in_common_are_left_open():
    other, _ = log(90, body=211, first=500)
    *before, last = cells([copy("a", DATA), copy("b", other)], 0, len(other), cell_max=2000)
    assert last.is_open
    assert len(before) < 5


def test_a_hole_over_many_cells_is_one_finding():
    start, end = PLACES[10] + 100, PLACES[30] + 100
    assert start // FILE_SIZE == end // FILE_SIZE
    bad = DATA[:start] + bytes(end - start) + DATA[end:]
    found = AuditFindings()
    found.extend(classify([copy("a", DATA), copy("b", bad)], 0, END, cell_max=1000))
    assert [(each.cls, each.offset, each.end) for each in found.kept] == [(C.HOLE, start, end)]


def test_holes_of_two_members_are_two_findings():
    start, end = PLACES[10] + 100, PLACES[30] + 100
    bad = DATA[:start] + bytes(end - start) + DATA[end:]
    found = classify([copy("a", DATA), copy("b", bad), copy("c", flipped(bad, END - 5))], 0, END, cell_max=1000)
    assert [(each.cls, each.member, each.offset, each.end) for each in found[:2]] == [
        (C.HOLE, "b", start, end),
        (C.HOLE, "c", start, end),
    ]
    assert len(found) == 3


def test_evidence_in_its_order():
    """Digests before queues before numbers."""
    bad = flipped(DATA, PLACES[5] + 47)
    good_copy, bad_copy, third = copy("a", DATA), copy("b", bad), copy("c", bad)
    place = PLACES[5] + 47
    assert brief(classify([good_copy, bad_copy], 0, END)) == [(C.DIFFERS, "b", place, None)]
    assert brief(classify([good_copy, evolve(bad_copy, digested=False)], 0, END)) == [(C.BIT_ROT, "b", place, "a")]
    assert brief(classify([good_copy, evolve(bad_copy, digested=True)], 0, END)) == [(C.BIT_ROT, "a", place, "b")]
    assert brief(classify([evolve(good_copy, queued=True), bad_copy], 0, END)) == [(C.BIT_ROT, "b", place, "a")]
    assert brief(classify([evolve(good_copy, queued=False), bad_copy], 0, END)) == [(C.BIT_ROT, "a", place, "b")]
    both = evolve(good_copy, digested=True, queued=False), evolve(bad_copy, digested=False, queued=True)
    assert brief(classify(both, 0, END)) == [(C.BIT_ROT, "b", place, "a")]
    assert brief(classify([good_copy, bad_copy, third], 0, END)) == [(C.BIT_ROT, "a", place, "b")]
    assert brief(classify([evolve(good_copy, digested=True), bad_copy, third], 0, END)) == [
        (C.BIT_ROT, "b", place, "a"),
        (C.BIT_ROT, "c", place, "a"),
    ]


def test_a_sound_record_beats_any_vote():
    bad = flipped(DATA, PLACES[5] + 100)
    found = classify([copy("a", DATA), copy("b", bad), copy("c", bad, digested=True)], 0, END)
    assert brief(found) == [(C.BIT_ROT, name, PLACES[5] + 100, "a") for name in ("b", "c")]
    assert {each.why for each in found} == {"its body does not match its CRC; sound on a"}


def test_very_many_findings_are_told_in_few():
    """The last of them as one, that counts for all."""
    bad = flipped(DATA, *(place + 100 for place in PLACES[::2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "KEPT_MAX", 10)
        found = classify([copy("a", DATA), copy("b", bad)], 0, END)
    assert [each.count for each in found] == [1] * 10 + [40]
    assert (found[-1].offset, found[-1].end) == (PLACES[20] + 100, PLACES[98] + 101)


def test_what_changed_is_said():
    found = classify([copy("a", DATA), copy("b", flipped(DATA, PLACES[3] + 100, PLACES[7] + 1))], 0, END)
    assert [each.what for each in found] == ["1 bit changed in the body", "1 bit changed in the length"]
    assert [(each.record, each.topic, each.queue_offset) for each in found] == [
        (PLACES[3], "T1", 3),
        (PLACES[7], "T1", 7),
    ]


def parted(**more) -> tuple[bytes, bytes, int]:
    """Two logs that diverge behind the 50th record."""
    ours, places = log(100)
    start = places[50]
    theirs, _ = log(40, first=900, start=start, late_ms=5, **more)
    return ours, ours[:start] + theirs, start


@pytest.mark.parametrize("body", [300, 210, 303])
def test_divergence_is_one_finding_up_to_the_end(body):
    ours, theirs, start = parted(body=body)
    found = classify([copy("a", ours), copy("b", theirs)], 0, min(len(ours), len(theirs)), cell_max=4000)
    assert brief(found) == [(C.DIVERGENT, "b", start, None)]
    assert found[0].end == len(theirs)


def test_the_newest_history_is_right():
    ours, theirs, start = parted()
    old = EpochEntry(epoch=3, winner="x:1", start_offset=0, at_ms=1)
    new = EpochEntry(epoch=4, winner="y:1", start_offset=start, at_ms=9)
    end = min(len(ours), len(theirs))
    found = classify([copy("a", ours, epochs=[FIRST, old]), copy("b", theirs, epochs=[FIRST, old, new])], 0, end)
    assert brief(found) == [(C.DIVERGENT, "a", start, "b")]
    assert found[0].epoch == 3
    assert "epoch 3 on a and epoch 4 on b" in found[0].why


def test_one_epoch_is_one_sequence_so_nobody_is_called_right():
    """Bytes of one master that differ: its number tells nothing."""
    ours, theirs, start = parted()
    old = EpochEntry(epoch=3, winner="x:1", start_offset=0, at_ms=1)
    new = EpochEntry(epoch=4, winner="y:1", start_offset=len(theirs), at_ms=9)
    end = min(len(ours), len(theirs))
    found = classify([copy("a", ours, epochs=[old]), copy("b", theirs, epochs=[old, new])], 0, end)
    assert brief(found) == [(C.DIVERGENT, "b", start, None)]


def test_most_members_tell_where_there_are_no_epochs():
    ours, theirs, start = parted()
    end = min(len(ours), len(theirs))
    found = classify([copy("a", ours), copy("b", theirs), copy("c", theirs)], 0, end)
    assert brief(found) == [(C.DIVERGENT, "a", start, "b")]


def test_logs_of_several_lengths_are_compared_as_far_as_each_goes():
    other = flipped(DATA, PLACES[60] + 100)
    short = copy("c", DATA[: PLACES[30]])
    late = evolve(copy("d", DATA), side=LogBounds("d", PLACES[50], END, file_size=FILE_SIZE))
    found = classify([copy("a", DATA), copy("b", other), short, late], 0, END)
    assert brief(found) == [(C.BIT_ROT, "b", PLACES[60] + 100, "a")]


@pytest.mark.parametrize("bad_at", [2 << 20, 30 << 20])
def test_what_cannot_be_read_far_behind_damage_is_no_crash(bad_at):
    """The search for a far next sound record meets a bad sector."""
    file_size = 64 << 20
    data = DATA[: PLACES[9]] + b"\1" * (40 << 20)
    side = LogBounds("", 0, len(data), file_size=file_size)
    bad = copy("b", data, refuses=range(bad_at, bad_at + 1))
    copies = [copy("a", flipped(data, PLACES[5] + 100)), bad]
    found = classify([evolve(each, side=evolve(side, name=each.side.name)) for each in copies], 0, 1 << 16)
    assert (C.UNREADABLE, "b", 0, None) in brief(found)


def test_a_copy_that_cannot_be_read_is_named_and_the_others_are_compared():
    bad = copy("b", DATA, refuses=range(PLACES[5], PLACES[6]))
    other = copy("c", flipped(DATA, PLACES[9] + 100))
    found = classify([copy("a", DATA), bad, other], 0, END)
    assert brief(found) == [(C.UNREADABLE, "b", 0, None), (C.BIT_ROT, "c", PLACES[9] + 100, "a")]
    assert "bad sector" in found[0].why


def random_damage(seeded: random.Random) -> tuple[int, bytes]:
    """Position and content of random damage."""
    at = seeded.randrange(END - 1000)
    kind = seeded.choice(("flip", "zero", "noise", "copy"))
    size = {"flip": 1, "zero": 1 << seeded.randrange(13), "noise": 1 << seeded.randrange(11)}.get(kind, 700)
    size = min(size, END - 400 - at)
    if kind == "flip":
        return at, bytes([DATA[at] ^ (1 << seeded.randrange(8))])
    if kind == "copy":
        source = seeded.randrange(END - size)
        return at, DATA[source : source + size]
    return at, bytes(size) if kind == "zero" else seeded.randbytes(size)


@pytest.mark.parametrize("cell_max", [1500, CELL_MAX])
@pytest.mark.parametrize("seed", range(60))
def test_each_changed_byte_is_in_a_finding_and_few_others_are(seed, cell_max):
    """Whatever happens to the bytes: the damaged copy is named where its records tell, and the other one never is."""
    seeded = random.Random(seed)
    changed = bytearray(DATA)
    for _ in range(seeded.choice((1, 1, 2, 5))):
        at, data = random_damage(seeded)
        changed[at : at + len(data)] = data
    places = [at for at in range(END) if changed[at] != DATA[at]]
    found = classify([copy("a", DATA), copy("b", bytes(changed))], 0, END, cell_max=cell_max)
    spans = [(each.offset, each.end) for each in found if each.offset is not None and each.end is not None]
    assert all(any(low <= at < high for low, high in spans) for at in places)
    assert all(any(low <= at < high for at in places) for low, high in spans)
    assert {each.member for each in found} <= {"b"}
    assert {each.cls for each in found} <= {C.BIT_ROT, C.HOLE, C.SWAPPED, C.SHIFTED, C.DIFFERS}
    assert spans == sorted(spans)


# The end


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (bytes(300), [(C.LAG, "b", PLACES[-2], "a")]),
        (DATA[PLACES[-2] : PLACES[-2] + 120] + bytes(200), [(C.LAG, "b", PLACES[-2], "a")]),
        (b"left by another log" * 30, [(C.LAG, "b", PLACES[-2], "a")]),
        (
            flipped(DATA[PLACES[-2] :], 100),
            [(C.BIT_ROT, "b", PLACES[-2] + 100, "a")],
        ),
        (
            flipped(DATA[PLACES[-2] : PLACES[-1]], 100),
            [(C.BIT_ROT, "b", PLACES[-2] + 100, "a"), (C.LAG, "b", PLACES[-1], "a")],
        ),
    ],
    ids=["nothing", "half a record", "something else", "a damaged record", "a damaged record, and no more"],
)
def test_what_lies_behind_an_end(tail, expected):
    """A damaged record at the end looks like the end."""
    shorter = copy("b", DATA[: PLACES[-2]] + tail, last=PLACES[-2])
    assert brief(tails([copy("a", DATA), shorter])) == expected


def test_nobody_looks_behind_the_end_of_a_running_log():
    shorter = copy("b", flipped(DATA, PLACES[-1] + 100), last=PLACES[-1])
    running = evolve(shorter, side=evolve(shorter.side, is_running=True))
    assert brief(tails([copy("a", DATA), running])) == [(C.LAG, "b", PLACES[-1], "a")]


# Shapes and findings


@pytest.mark.parametrize("places", [[0], [99], [0, 99], [50], [10, 60], [7, 8, 9]])
def test_the_first_and_the_last_byte_that_differ(places):
    data = bytes(range(100))
    where = shapes.difference(data, flipped(data, *places))
    assert where == (places[0], places[-1] + 1)
    assert shapes.changed_bits(data, flipped(data, *places), where) == len(places)


def test_a_hole_reaches_to_the_edges_where_it_is_one():
    good = b"\0\0" + b"x" * 60 + b"\0\0"
    assert shapes.hole(bytes(64), shapes.difference(bytes(64), good)) == (0, 64)
    bad = b"\0\0x" + bytes(58) + b"x\0\0"
    assert shapes.hole(bad, shapes.difference(bad, good)) == (3, 61)
    assert shapes.hole(good[:20] + bytes(20) + good[40:], shapes.ChangedSpan(20, 40)) is None


def test_fields_of_a_record_by_name():
    raw = DATA[: PLACES[1]]
    names = [(name, start) for name, start, _ in shapes.fields(raw)]
    assert names[0] == ("length", 0)
    assert ("queue offset", 20) in names
    assert ("store time", 56) in names
    assert names[-3:] == [("body", 84), ("topic", names[-2][1]), ("properties", names[-1][1])]
    assert raw[names[-2][1] :].startswith(b"\x02T1")
    assert shapes.fields_of(raw, shapes.ChangedSpan(0, 13)) == "length to queue id"
    assert shapes.fields_of(raw, shapes.ChangedSpan(3, 5)) == "length and magic"


def finding(cls=C.BIT_ROT, member="b", offset: int | None = 0, end: int | None = 10, **more) -> AuditFinding:
    return AuditFinding(**({"cls": cls, "member": member, "offset": offset, "end": end, "what": "", "why": ""} | more))


def test_kept_findings_are_bounded_and_all_are_counted():
    found = AuditFindings()
    found.extend(finding(offset=n * 20, end=n * 20 + 10) for n in range(1000))
    found.add(finding(C.QUEUE, offset=None, end=None, count=3))
    assert len(found.kept) == 201
    assert found.totals == {("b", C.BIT_ROT): 1000, ("b", C.QUEUE): 3}
    assert found.left_out == 800


def test_what_follows_from_another_finding_is_left_out():
    """Where a divergent log ends; a slave's offset beside a wrong one of the master."""
    wrong: Mapping[str, object] = {"offset": None, "end": None, "topic": "T", "queue_id": 1, "file": "config/x"}
    own = {"a": [finding(C.OFFSETS, "a", **wrong)], "b": []}
    log_findings = [finding(C.DIVERGENT), finding(C.LAG), finding(C.LAG, "c")]
    between = [finding(C.OFFSETS, "b", **wrong), finding(C.OFFSETS, "b", **{**wrong, "queue_id": 2})]
    assert brief(list(settled(log_findings, own, between))) == [
        (C.DIVERGENT, "b", 0, None),
        (C.LAG, "c", 0, None),
        (C.OFFSETS, "a", None, None),
        (C.OFFSETS, "b", None, None),
    ]

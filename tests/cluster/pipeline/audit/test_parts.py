"""Where the logs of several members may be read as one."""

import attrs
import pytest

from twinlog.cluster.pipeline.audit.compare import ByteRange
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.parts import parts_alone, parts_together, unequal_ranges
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.integrity.digest import DigestBlock
from twinlog.store.offline.verify.digest_check import ComparedDigests

SIZE = 1000


def store(end: int, first: int = 0, **fields: object) -> StoreFiles:
    """A log of whole files."""
    starts = range(first - first % SIZE, end + (end % SIZE > 0), SIZE)
    log = tuple(LogFile(StoreUri(f"/{start:020}"), start, SIZE) for start in starts)
    return StoreFiles(uri=StoreUri("/"), log=log, file_size=SIZE, first=first, end=end, **fields)


def shown(files: dict[int, StoreFiles], *unequal: tuple[int, int], alone: tuple[int, ...] = ()) -> list[tuple]:
    """Members, start and end of each part."""
    found = parts_together(files, {}, [ByteRange(*each) for each in unequal], alone)
    return sorted((part.members, part.split.start, part.split.end) for part in found)


def covers(files: dict[int, StoreFiles], parts: list[tuple]) -> bool:
    """True if each byte of each member's files is in one part."""
    for number, each in files.items():
        own = sorted((start, end) for members, start, end in parts if number in members)
        ends = [each.first, *(end for _, end in own)]
        if [start for start, _ in own] != ends[:-1] or ends[-1] != each.log[-1].start + SIZE:
            return False
    return True


def test_equal_logs():
    """What lies behind their end is each member's own."""
    files = {0: store(1400), 1: store(1400)}
    assert shown(files) == [((0,), 1400, 2000), ((0, 1), 0, 1000), ((0, 1), 1000, 1400), ((1,), 1400, 2000)]


def test_a_member_that_is_behind():
    files = {0: store(1400), 1: store(1100), 2: store(1400)}
    parts = shown(files)
    assert [part for part in parts if len(part[0]) > 1] == [
        ((0, 1, 2), 0, 1000),
        ((0, 1, 2), 1000, 1100),
        ((0, 2), 1100, 1400),
    ]
    assert covers(files, parts)


@pytest.mark.parametrize(
    "other",
    [
        store(2000, first=500),
        store(2000, has_abort=True),
        attrs.evolve(store(2000), log=tuple(attrs.evolve(file, size=900) for file in store(2000).log)),
        attrs.evolve(store(2000), file_size=SIZE // 2),
    ],
)
def test_what_is_not_alike_is_read_apart(other):
    """A log that begins within a file, one after a crash, files that are cut, files of another size."""
    parts = shown({0: store(2000), 1: other})
    assert not [part for part in parts if len(part[0]) > 1 and part[1] < SIZE]


def test_where_they_may_differ_and_behind_in_the_file_they_are_read_apart():
    files = {0: store(3000), 1: store(3000)}
    parts = shown(files, (1999, 2001))
    assert [part for part in parts if len(part[0]) > 1] == [((0, 1), 0, 1000)]
    assert covers(files, parts)
    assert covers(files, shown(files, (0, 3000)))


def test_a_member_may_stay_alone():
    files = {0: store(1000), 1: store(1000), 2: store(1000)}
    assert shown(files, alone=(1,)) == [((0, 2), 0, 1000), ((1,), 0, 1000)]
    assert [len(unit) for unit in parts_alone(files, {})] == [1, 1, 1]


def test_each_part_has_the_digests_of_its_blocks():
    block = DigestBlock(1000, 1100, b"x" * 16)
    known = {0: ComparedDigests(((0, 2000),), (block,))}
    first, second, *_ = parts_together({0: store(2000), 1: store(2000)}, known, [])
    assert (first.split, [each.differing for each in first.known]) == (Split(0, 1000), [(), ()])
    assert (second.split, [each.differing for each in second.known]) == (Split(1000, 2000), [(block,), ()])


def finding(cls: FindingClass, offset: int | None, end: int | None, **fields: object) -> AuditFinding:
    return AuditFinding(cls=cls, member="a", offset=offset, end=end, what="x", why="y", **fields)


def test_bytes_that_may_differ():
    """A range without a finding in it is equal; a finding counts from its record to its end, or to the log's."""
    differing = [ByteRange(0, 10), ByteRange(100, 200), ByteRange(300, 400)]
    rot = finding(FindingClass.BIT_ROT, 150, 151, record=140, record_end=160)
    assert unequal_ranges(differing, []) == []
    assert unequal_ranges(differing, [finding(FindingClass.LAG, 5, 900)]) == []
    assert unequal_ranges(differing, [rot]) == [ByteRange(140, 160), ByteRange(100, 200)]
    for cls, end in ((FindingClass.DIVERGENT, 260), (FindingClass.UNREADABLE, None)):
        low, *ranges = unequal_ranges(differing, [finding(cls, 250, end)])
        assert (low.start, ranges) == (250, [ByteRange(300, 400)])
        assert low.end > 1 << 60

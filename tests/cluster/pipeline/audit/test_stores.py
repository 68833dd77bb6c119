"""Division of an audit's work, and the bounds that can be compared."""

import pytest

from twinlog.cluster.pipeline.audit import stores
from twinlog.cluster.pipeline.audit.compare import ByteRange, LogBounds
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.stores import before_unreadable_end, bounded, is_known, split_size
from twinlog.cluster.pipeline.audit.tasks import Differing
from twinlog.cluster.pipeline.sources.log_bytes import SPLIT_SIZE

SIDE = LogBounds("a", 0, 1000, claimed=1000)


def unreadable(start: int | None, end: int | None, member: str = "a", file: str | None = None) -> AuditFinding:
    return AuditFinding(cls=FindingClass.UNREADABLE, member=member, offset=start, end=end, what="x", why="y", file=file)


@pytest.mark.parametrize(
    ("spans", "last"),
    [
        ([], 1000),
        ([(100, 200)], 1000),
        ([(900, 1000)], 900),
        ([(900, 2000)], 900),
        ([(800, 900), (900, 2000)], 800),
        ([(0, 1000)], 0),
        ([(None, None)], 1000),
    ],
)
def test_a_log_is_compared_before_an_end_that_cannot_be_read(spans, last):
    found = before_unreadable_end(SIDE, [unreadable(*span) for span in spans])
    assert found.last == last
    assert (found is SIDE) == (last == 1000)
    assert found.claimed == (1000 if last == 1000 else None), "what lies behind may be all there"


def test_what_others_cannot_read_is_their_own():
    assert before_unreadable_end(SIDE, [unreadable(900, 1000, "b")]) is SIDE


def test_splits_are_large_where_there_are_many():
    small, large = LogBounds("a", 0, 1 << 30), LogBounds("b", 0, 1 << 40)
    assert split_size([small, small], 2) == SPLIT_SIZE
    assert split_size([small, large], 2) == stores.SPLIT_SIZE_LARGE
    assert split_size([small, large], 4096) == SPLIT_SIZE


def test_the_ranges_that_are_looked_into_are_bounded(monkeypatch):
    """None is omitted."""
    monkeypatch.setattr(stores, "RANGES_MAX", 3)
    parts = [Differing(ByteRange(n * 10, n * 10 + 5), (0, n % 3)) for n in range(6)]
    found = bounded(parts)
    assert found[:2] == parts[:2]
    assert found[2:] == [Differing(ByteRange(20, 55), (0, 1, 2))]
    assert bounded(parts[:3]) == parts[:3]


def test_a_file_that_cannot_be_read_is_told_once():
    known = [unreadable(0, 10, file="commitlog/1")]
    assert is_known(unreadable(None, None, file="commitlog/1"), known)
    assert not is_known(unreadable(None, None, file="commitlog/2"), known)
    assert not is_known(unreadable(None, None, "b", file="commitlog/1"), known)

"""From digests of several members to pieces: who is equal, who is not, and what nobody could give a digest of."""

import pytest

from twinlog.cluster.pipeline.audit.compare import BlockRow
from twinlog.cluster.pipeline.ledger import pieces as module
from twinlog.cluster.pipeline.ledger.pieces import differing, joined_pieces, parts_to_read, pieces_of
from twinlog.cluster.pipeline.ledger.values import Look, Piece, Planned, Reason, Span
from twinlog.store.integrity.digest import BLOCK_SIZE

SPAN, NAMES = Span(0, 4 * BLOCK_SIZE), ("a", "b", "c")


def rows(letters: str) -> list[BlockRow]:
    """A digest a letter; a space: none."""
    return [
        BlockRow(number * BLOCK_SIZE, (number + 1) * BLOCK_SIZE, letter.encode() * 16)
        for number, letter in enumerate(letters)
        if letter != " "
    ]


def shown(*letters: str, bad: dict | None = None) -> list[tuple[int, int, str, str]]:
    """Pieces in blocks: start, end, equal members, different ones."""
    names = NAMES[: len(letters)]
    found = pieces_of(SPAN, names, {name: rows(each) for name, each in zip(names, letters, strict=True)}, bad or {})
    planned = [Planned(start=0, end=SPAN.end, reason=Reason.NEW)]
    return [
        (each.start // BLOCK_SIZE, each.end // BLOCK_SIZE, "".join(each.equal), "".join(each.different))
        for each in joined_pieces(found, planned)
    ]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (("wxyz", "wxyz", "wxyz"), [(0, 4, "abc", "")]),
        (("wxyz", "wAAz", "wxyz"), [(0, 1, "abc", ""), (1, 3, "ac", "b"), (3, 4, "abc", "")]),
        (("wxyz", "wAyz"), [(0, 1, "ab", ""), (1, 2, "", "ab"), (2, 4, "ab", "")]),
        (("w yz", "wxyz", "wxyz"), [(0, 1, "abc", ""), (1, 2, "bc", "a"), (2, 4, "abc", "")]),
        (("w yz", "w yz"), [(0, 1, "ab", ""), (1, 2, "", "ab"), (2, 4, "ab", "")]),  # A file that nobody has.
        (("    ", "    "), [(0, 4, "", "ab")]),
        (("wxy ", "wxy "), [(0, 3, "ab", ""), (3, 4, "", "ab")]),
    ],
)
def test_pieces(letters, expected):
    assert shown(*letters) == expected


def test_pieces_end_where_a_planned_range_begins():
    pieces = [Piece(start=low, end=low + BLOCK_SIZE, equal=NAMES) for low in range(0, SPAN.end, BLOCK_SIZE)]
    planned = [
        Planned(start=0, end=BLOCK_SIZE, reason=Reason.AGAIN),
        Planned(start=BLOCK_SIZE, end=SPAN.end, reason=Reason.NEW),
    ]
    assert [(each.start, each.end) for each in joined_pieces(pieces, planned)] == [
        (0, BLOCK_SIZE),
        (BLOCK_SIZE, SPAN.end),
    ]


def test_a_log_that_differs_everywhere_does_not_fill_the_ledger(monkeypatch):
    """What lies behind many pieces is one, in which nothing is proved."""
    monkeypatch.setattr(module, "PIECES_MAX", 2)
    found = shown("wxyz", "wAyB")
    assert found == [(0, 1, "ab", ""), (1, 2, "", "ab"), (2, 4, "", "ab")]


def test_ranges_to_compare_by_records_are_joined():
    found = [
        Piece(start=0, end=1, equal=("a", "b"), different=("c",)),
        Piece(start=1, end=2, equal=(), different=NAMES),
        Piece(start=2, end=3, equal=NAMES),
        Piece(start=3, end=4, equal=("a", "c"), different=("b",)),
    ]
    assert differing(found) == [(Span(0, 2), NAMES), (Span(3, 4), NAMES)]


def test_parts_end_where_a_member_does():
    looks = [
        Look(name="a", place="", last=100),
        Look(name="b", place="", last=70),
        Look(name="c", place="", first=20, last=100),
        Look(name="d", place="", problem="away"),
    ]
    planned = [Planned(start=0, end=100, reason=Reason.NEW)]
    assert list(parts_to_read(planned, looks, 40)) == [
        (Span(0, 20), ("a", "b")),
        (Span(20, 40), ("a", "b", "c")),
        (Span(40, 70), ("a", "b", "c")),
        (Span(70, 80), ("a", "c")),
        (Span(80, 100), ("a", "c")),
    ]

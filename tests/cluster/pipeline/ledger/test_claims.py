"""What ends a member's part in a proof, one cause at a time. Everything at once: test_model.py."""

import pytest
from attrs import evolve

from twinlog.cluster.pipeline.ledger.claims import OtherLedgerError, check_ledger, gone_of, lost_of, still_holding
from twinlog.cluster.pipeline.ledger.values import Basis, LedgerState, LogEpoch, LogPart, Look, Proof, Span

BEFORE = Look(
    name="a",
    place="/data/a",
    first=100,
    last=1000,
    store="m1",
    epochs=(LogEpoch(epoch=1, winner="m1", start=0), LogEpoch(epoch=2, winner="m2", start=600)),
    parts=(LogPart(start=0, end=500, id="7", written="5"), LogPart(start=500, end=1000, id="8")),
)
NEXT = LogEpoch(epoch=3, winner="m1", start=1000)


def gone(**change: object) -> list[tuple[int, int, bool]]:
    """Start, end, and whether a reason is told; what lies below the log's start is left out."""
    found = [each for each in gone_of(BEFORE, evolve(BEFORE, **change)) if each.span != Span(0, BEFORE.first)]
    return [(each.span.start, min(each.span.end, 9999), each.why is not None) for each in found]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"last": 2000, "epochs": (*BEFORE.epochs, NEXT)}, []),  # It grew, in a new epoch.
        ({"problem": "away", "first": 0, "last": 0}, []),
        ({"store": "m9"}, [(0, 9999, True)]),
        ({"store": "", "place": "/data/b"}, [(0, 9999, True)]),
        ({"place": "10.0.0.9:10911"}, []),  # The same store at another address.
        ({"last": 900}, [(900, 9999, True)]),
        ({"first": 300}, [(0, 300, False)]),
        ({"epochs": (BEFORE.epochs[0], evolve(BEFORE.epochs[1], winner="m3"))}, [(600, 9999, True)]),
        ({"epochs": (BEFORE.epochs[0], evolve(NEXT, start=800)), "last": 2000}, [(600, 9999, True)]),
        ({"epochs": (*BEFORE.epochs, evolve(NEXT, start=900)), "last": 2000}, [(900, 9999, True)]),
        ({"parts": (evolve(BEFORE.parts[0], id="9"), BEFORE.parts[1])}, [(0, 500, True)]),
        ({"parts": (evolve(BEFORE.parts[0], written="6"), BEFORE.parts[1])}, [(0, 500, True)]),
        ({"parts": (BEFORE.parts[0], evolve(BEFORE.parts[1], written="6"))}, []),  # It is full now.
        ({"parts": BEFORE.parts[1:]}, [(0, 500, True)]),
        ({"parts": BEFORE.parts[1:], "first": 500}, [(0, 500, False), (0, 500, False)]),
    ],
)
def test_what_is_gone(change, expected):
    assert gone(**change) == expected


def test_what_a_member_lost_is_counted_once():
    proofs = [Proof(start=100, end=1000, members=("a", "b"), at_ms=1, run=1)]
    now = evolve(BEFORE, last=900, parts=(BEFORE.parts[0], evolve(BEFORE.parts[1], id="9")))
    lost = lost_of(proofs, "a", list(gone_of(BEFORE, now)))
    assert sum(each.end - each.start for each in lost) == 500


def test_samples_are_taken_anew_in_each_run():
    proof = Proof(start=100, end=1000, members=("a", "b"), at_ms=1, run=1, by=Basis.SAMPLES)
    state = LedgerState(run=1, members=(BEFORE, evolve(BEFORE, name="b")), proofs=(proof,))
    assert still_holding(state, state.members)[0].proofs == ()


def test_a_ledger_of_others_is_refused():
    state = LedgerState(run=1, kind="directories", members=(BEFORE, evolve(BEFORE, name="b")))
    check_ledger(state, [BEFORE, evolve(BEFORE, name="c")], "directories")
    for looks, kind in (([evolve(BEFORE, name="c")], "directories"), ([BEFORE], "live")):
        with pytest.raises(OtherLedgerError, match="the ledger is of directories: a, b"):
            check_ledger(state, looks, kind)

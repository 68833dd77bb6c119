"""A small ledger, as two runs write it: for tests of what reads one."""

from pathlib import Path

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.ledger.files import opened
from twinlog.cluster.pipeline.ledger.values import (
    Basis,
    Compared,
    Fault,
    LedgerState,
    LogEpoch,
    Look,
    Piece,
    Planned,
    Proof,
    Reason,
    RunResult,
    SeenFinding,
)

HOUR, WEEK, NOON = 3_600_000, 7 * 86_400_000, 1_795_262_400_000
BLOCK = 65_536
NAMES = ("broker-a-0", "broker-a-1", "broker-a-2")


def look(name: str, last: int) -> Look:
    """A member whose log has bytes 0 to `last`."""
    epochs = (LogEpoch(epoch=3, winner="m1", start=0),)
    return Look(name=name, place=f"/data/{name}", first=0, last=last, epochs=epochs, software="twinlog")


def first_run() -> RunResult:
    """Four blocks are equal, but for the second one of the last member."""
    looks = tuple(look(name, 4 * BLOCK) for name in NAMES)
    finding = AuditFinding(
        cls=FindingClass.BIT_ROT,
        member=NAMES[2],
        offset=BLOCK + 7,
        end=BLOCK + 8,
        what="1 bit changed",
        why="CRC",
        good=NAMES[0],
    )
    seen = SeenFinding(id=1, state="new", first_run=1, first_ms=NOON, last_run=1, last_ms=NOON, finding=finding)
    pieces = (
        Piece(start=0, end=BLOCK, equal=NAMES, digest="aa" * 16),
        Piece(start=BLOCK, end=2 * BLOCK, equal=NAMES[:2], different=NAMES[2:], digest="bb" * 16),
        Piece(start=2 * BLOCK, end=4 * BLOCK, equal=NAMES, digest="cc" * 16),
    )
    proofs = tuple(
        Proof(start=each.start, end=each.end, members=each.equal, at_ms=NOON, run=1, digest=each.digest)
        for each in pieces
    )
    state = LedgerState(
        run=1,
        started_ms=NOON,
        ended_ms=NOON + 2_000,
        kind="directories",
        verdict="divergent",
        paced_ms=NOON,
        full_pass_ms=WEEK,
        members=looks,
        proofs=proofs,
        faults=(Fault(start=BLOCK, end=2 * BLOCK, members=NAMES[2:]),),
        findings=(seen,),
        next_id=2,
        new_bytes=4 * BLOCK,
        read_bytes=12 * BLOCK,
    )
    planned = (Planned(start=0, end=4 * BLOCK, reason=Reason.NEW),)
    compared = Compared(pieces=pieces, findings=(finding,), read_bytes=12 * BLOCK, by=Basis.DIGESTS)
    return RunResult(state=state, looks=looks, planned=planned, compared=compared)


def make_ledger(directory: Path) -> Path:
    """Write both runs."""
    from attrs import evolve

    one = first_run()
    looks = tuple(look(name, 5 * BLOCK) for name in NAMES)
    pieces = (
        Piece(start=BLOCK, end=2 * BLOCK, equal=NAMES, digest="bb" * 16),
        Piece(start=4 * BLOCK, end=5 * BLOCK, equal=NAMES, digest="dd" * 16),
    )
    later = NOON + HOUR
    new = [
        Proof(start=each.start, end=each.end, members=NAMES, at_ms=later, run=2, digest=each.digest) for each in pieces
    ]
    kept = one.state.proofs
    state = evolve(
        one.state,
        run=2,
        started_ms=later,
        ended_ms=later + 500,
        verdict="equal",
        paced_ms=later,
        members=looks,
        proofs=(kept[0], new[0], kept[2], new[1]),
        faults=(),
        findings=(),
        new_bytes=BLOCK,
        fault_bytes=BLOCK,
        read_bytes=6 * BLOCK,
    )
    planned = (
        Planned(start=BLOCK, end=2 * BLOCK, reason=Reason.FAULT),
        Planned(start=4 * BLOCK, end=5 * BLOCK, reason=Reason.NEW),
    )
    closed = tuple(evolve(seen, state="repaired", closed_ms=later) for seen in one.state.findings)
    two = RunResult(
        state=state, looks=looks, planned=planned, compared=Compared(pieces=pieces, read_bytes=6 * BLOCK), closed=closed
    )
    with opened(directory) as ledger:
        ledger.add(one, "0.3")
        ledger.add(two, "0.3")
    return directory

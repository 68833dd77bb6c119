"""The history of a ledger: three weeks of a group of three, with a run each six hours, and what happened to it."""

from attrs import evolve

from twinlog.cluster.pipeline.ledger.rows import FindingRow, MemberRow, ProofRow, RunRow
from twinlog.cluster.pipeline.report.history import Coverage, History, chosen, known_last

HOUR = 3_600_000
WEEK = 7 * 24 * HOUR
START = 1_795_300_000_000
EACH = 6 * HOUR
RUNS = 84
GROWTH = 250_000_000  # Bytes from run to run.
BLOCK = 50_000_000
NAMES = ("broker-a-0", "broker-a-1", "broker-a-2")
AWAY = range(30, 38)  # Runs that could not read broker-a-2.


def at(run: int) -> int:
    return START + run * EACH


def findings(run: int) -> list[FindingRow]:
    """Those that a run tells of."""
    rotten = FindingRow(
        run=run,
        id=1,
        state="seen",
        first_run=20,
        first_seen=at(20),
        last_run=run,
        last_seen=at(run),
        cls="bit-rot",
        member="broker-a-1",
        offset=3_137_264_000,
        end=3_137_265_000,
        what="1 bit changed in the body",
        why="the CRC of broker-a-1's record is wrong, and that of the others is right",
        good="broker-a-0",
    )
    config = evolve(
        rotten,
        id=2,
        first_run=44,
        first_seen=at(44),
        cls="config",
        member="broker-a-2",
        offset=None,
        end=None,
        what="topic <orders> is missing",
        good=None,
    )
    wrong = evolve(
        rotten,
        id=3,
        first_run=60,
        first_seen=at(60),
        cls="divergent",
        member="broker-a-2",
        offset=15_000_000_000,
        end=15_020_000_000,
        what="different messages",
    )
    rotten_now = evolve(
        rotten,
        id=4,
        first_run=81,
        first_seen=at(81),
        state="unchecked",
        last_seen=at(81),
        cls="hole",
        member="broker-a-2",
        offset=8_000_000_000,
        end=8_200_000_000,
        what="200 MB of zeros",
    )
    found = []
    for row, until in ((rotten, 23), (config, 46), (wrong, 64), (rotten_now, RUNS + 1)):
        if row.first_run <= run < until:
            found.append(evolve(row, state="new" if run == row.first_run else row.state))
        elif run == until:
            found.append(evolve(row, state="repaired", closed=at(run)))
    return found


def coverage(run: int) -> Coverage:
    """What is proved after a run: new bytes in it, all others at some time in the week before it."""
    end, first = GROWTH * run, max(0, GROWTH * (run - 76))
    names = NAMES[:2] if run in AWAY else NAMES
    proofs = []
    for number in range(first // BLOCK, end // BLOCK):
        born = (number * BLOCK) // GROWTH + 1
        since = run - born
        last = born + since // 28 * 28 if not 52 <= run <= 56 else born
        who = NAMES[:2] if last in AWAY else names
        if run >= 81 and 8_000_000_000 <= number * BLOCK < 8_200_000_000:
            who = NAMES[:2]
        proofs.append(
            ProofRow(
                run=run,
                start=number * BLOCK,
                end=(number + 1) * BLOCK,
                members=who,
                by="digests",
                proved=at(last),
                proved_run=last,
            )
        )
    members = tuple(
        MemberRow(
            run=run,
            member=name,
            place=f"/data/{name}",
            is_master=name == NAMES[0],
            first=None if name not in names else first,
            last=None if name not in names else end + GROWTH // (3 if name == NAMES[0] else 9),
            proved_to=end,
            problem=None if name in names else "there is no such directory",
        )
        for name in NAMES
    )
    found = findings(run)
    row = RunRow(
        run=run,
        started=at(run) - 90_000,
        ended=at(run),
        kind="directories",
        verdict="divergent" if any(each.closed is None for each in found) else "incomplete" if run in AWAY else "equal",
        proved_from=first,
        proved_to=end,
        log_end=end + GROWTH // 3,
        oldest_proof=min(each.proved for each in proofs),
        new_bytes=GROWTH,
        again_bytes=GROWTH // 2,
        read_bytes=3 * GROWTH * 3 // 2,
        findings_new=sum(each.state == "new" for each in found),
        findings_open=sum(each.closed is None for each in found),
        findings_closed=sum(each.closed is not None for each in found),
        full_pass_seconds=WEEK / 1000,
    )
    return Coverage(run=row, members=members, proofs=tuple(proofs))


def history(last: int = RUNS) -> History:
    """Runs 1 to `last`."""
    numbers = range(1, last + 1)
    return History(
        drawn=tuple(coverage(run) for run in chosen(numbers, 96)),
        listed=tuple(coverage(run).run for run in numbers[-30:]),
        findings=known_last(row for run in numbers for row in findings(run)),
        first=1,
    )

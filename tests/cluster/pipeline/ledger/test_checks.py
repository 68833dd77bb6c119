"""What a ledger tells a monitoring system."""

import pytest

from twinlog.cluster.observe.findings import CheckResult, Level
from twinlog.cluster.pipeline.audit.standing import MemberStanding, Standing
from twinlog.cluster.pipeline.ledger.checks import findings_of, with_audit
from twinlog.cluster.pipeline.ledger.text import line, proved

NOW, MINUTE, DAY = 1_795_262_400_000, 60_000, 86_400_000
MEMBER = MemberStanding(name="a", place="/data/a", first_offset=0, last_offset=1000, proved_to=1000)


def standing(**change: object) -> Standing:
    known = {
        "run": 3,
        "verdict": "equal",
        "checked_ms": NOW - 12 * MINUTE,
        "proved_from": 0,
        "proved_to": 1000,
        "log_end": 1000,
        "compared_by": "digests",
        "oldest_proof_ms": NOW - DAY,
        "full_pass_seconds": 7 * 86_400.0,
        "members": (MEMBER,),
    }
    return Standing(**{**known, **change})


def found(**change: object) -> list[tuple[Level, str]]:
    return [(each.level, each.what) for each in findings_of(standing(**change), "L", NOW, 2 * 86_400)]


def test_all_is_well():
    assert found() == [(Level.NOTE, "audit L: proved equal up to offset 1\u202f000, 12 min ago")]


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"open_findings": 2}, Level.CRITICAL, "2 findings are open"),
        (
            {
                "members": (
                    MEMBER,
                    MemberStanding(name="b", place="", first_offset=0, last_offset=0, proved_to=0, is_away=True),
                )
            },
            Level.WARNING,
            "could not read b",
        ),
        ({"verdict": "incomplete"}, Level.WARNING, "not complete"),
        ({"checked_ms": NOW - 3 * DAY}, Level.WARNING, "the last run was 3 d 0 h ago"),
        ({"run": 0}, Level.WARNING, "there was no run yet"),
        ({"oldest_proof_ms": NOW - 13 * DAY}, Level.WARNING, "the oldest proof is 13 d 0 h old"),
    ],
)
def test_what_is_wrong(change, level, words):
    first, *rest = found(**change)
    assert (first[0], words in first[1], len(rest)) == (level, True, 1)


def test_the_level_of_a_check_is_that_of_the_worst():
    result = CheckResult(level="ok", findings=(), members=())
    assert with_audit(result, tuple(findings_of(standing(), "L", NOW, DAY))).level == "ok"
    worse = with_audit(result, tuple(findings_of(standing(open_findings=1), "L", NOW, DAY)))
    assert (worse.level, worse.findings[0].level) == ("critical", Level.CRITICAL)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_end": 1500}, "proved equal up to offset 1\u202f000, 500 B before the end of the longest log"),
        ({"compared_by": "samples"}, "proved equal by samples up to offset 1\u202f000"),
        ({"proved_from": None, "proved_to": None}, "nothing is proved equal: the members have no byte in common"),
        ({"proved_to": 0}, "nothing is proved equal from offset 0 on"),
        ({"run": 0}, "not audited yet"),
    ],
)
def test_sentences(change, words):
    assert proved(standing(**change)) == words


def test_a_run_in_one_line():
    told = line(standing(new_bytes=5_000, again_bytes=1_000, lost_bytes=7, open_findings=1), 2.0)
    assert told == (
        "run 3: equal, proved equal up to offset 1\u202f000, 5.0 kB new, 1.0 kB again, "
        "the proof of 7 B ended, 1 finding open, in 2.0 s"
    )

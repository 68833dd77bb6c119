"""Members without an index, or with a cut log file, by comparison with the other members."""

import pytest
from attrs import evolve

from twinlog.cluster.pipeline.audit.completeness import CUT_AT_END, CUT_BEHIND_END, StoreExtent, incomplete
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass

SIZE = 1000
WHOLE = StoreExtent(
    "a",
    file_size=SIZE,
    log_start=0,
    log_end=1400,
    files=2,
    last_file=(1000, 2000),
    index_files=2,
    indexed=(600, 1300),
)
SLAVE = evolve(WHOLE, name="b")
SINGLE = StoreExtent("c", file_size=400, log_start=0, log_end=400, files=1, last_file=(0, 400), index_files=1)


def found(*members: StoreExtent, truncated: tuple[str, ...] = ()) -> list[AuditFinding]:
    return list(incomplete(members, truncated))


def test_members_that_have_all():
    assert found(WHOLE, SLAVE) == []


def test_a_member_without_an_index():
    (finding,) = found(WHOLE, evolve(SLAVE, index_files=0))
    assert (finding.cls, finding.member, finding.good, finding.file) == (FindingClass.INDEX, "b", "a", "index")
    assert finding.why == "a has one, in 2 files"


@pytest.mark.parametrize(("start", "end"), [(0, 600), (0, 0), (1301, 1400)])
def test_a_member_that_has_no_record_which_is_in_the_index_lacks_none(start, end):
    """It is behind, or its log begins later: only what both logs hold is compared."""
    behind = evolve(SLAVE, index_files=0, log_start=start, log_end=end, last_file=None)
    assert found(WHOLE, behind) == []


@pytest.mark.parametrize(("start", "end"), [(0, 601), (1300, 1400)])
def test_one_common_record_in_the_index_is_enough(start, end):
    (finding,) = found(WHOLE, evolve(SLAVE, index_files=0, log_start=start, log_end=end, last_file=None))
    assert (finding.cls, finding.member) == (FindingClass.INDEX, "b")


@pytest.mark.parametrize("index_files", [None, 3])
def test_an_archive_of_the_log_alone_needs_none(index_files):
    assert found(WHOLE, evolve(SLAVE, index_files=index_files)) == []


def test_where_nobody_has_an_index_none_is_missing():
    assert found(evolve(WHOLE, index_files=0), evolve(SLAVE, index_files=0)) == []


def test_a_last_file_that_is_cut_at_the_end_of_the_log():
    (finding,) = found(WHOLE, evolve(SLAVE, last_file=(1000, 1400)))
    assert (finding.cls, finding.what, finding.file) == (FindingClass.TRUNCATED, CUT_AT_END, f"commitlog/{1000:020d}")
    assert (finding.offset, finding.end) == (1400, 2000)


def test_a_single_file_is_judged_by_those_of_the_others():
    whole = evolve(WHOLE, log_end=400, files=1, last_file=(0, 1000))
    assert [each.what for each in found(whole, SINGLE)] == [CUT_AT_END]
    assert found(SINGLE, evolve(SINGLE, name="d")) == []


def test_a_last_file_that_is_cut_behind_the_end_of_the_log():
    (finding,) = found(WHOLE, evolve(SLAVE, last_file=(1000, 1500)))
    assert (finding.cls, finding.what, finding.offset) == (FindingClass.TRUNCATED, CUT_BEHIND_END, 1500)


@pytest.mark.parametrize("member", [evolve(SLAVE, last_file=(1000, 1300)), evolve(SLAVE, last_file=None)])
def test_what_does_not_end_with_the_log_is_not_cut_there(member):
    assert found(WHOLE, member) == []


def test_who_lost_records_is_told_of_that_alone():
    assert found(WHOLE, evolve(SLAVE, last_file=(1000, 1400)), truncated=("b",)) == []


def damage(number: int, what: str = "3 bits changed in the body", **more) -> AuditFinding:
    """Of the record at 100 * number."""
    start = 100 * number
    return AuditFinding(
        cls=FindingClass.BIT_ROT,
        member="b",
        offset=start + 60,
        end=start + 63,
        what=what,
        why=f"the body's CRC differs at {start}; sound on a",
        good="a",
        file="commitlog/0",
        record=start,
        record_end=start + 100,
        **more,
    )


def test_neighbouring_damaged_records_are_one_finding():
    findings = AuditFindings()
    findings.extend([damage(1), damage(2, "1 bit changed in the topic"), damage(3), damage(5)])
    first, second = findings.kept
    assert (first.offset, first.end, first.record, first.record_end, first.count) == (160, 363, 100, 400, 3)
    assert first.what == "3 records in a row are damaged"
    assert first.why == "the first one: the body's CRC differs at 100; sound on a"
    assert second == damage(5)
    assert findings.totals[("b", FindingClass.BIT_ROT)] == 4


def test_damage_on_other_members_and_in_other_files_stays_apart():
    findings = AuditFindings()
    findings.extend([damage(1), evolve(damage(2), file="commitlog/1")])
    assert [each.count for each in findings.kept] == [1, 1]

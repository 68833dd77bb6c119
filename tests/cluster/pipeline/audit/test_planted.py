"""Faults planted in pairs of stores: each is found with its class and place, and nothing else is."""

import shutil
from contextlib import ExitStack, closing

import pytest

from tests.cluster.pipeline import logs
from tests.cluster.pipeline.auditing import audited, tables_in_parts
from tests.cluster.pipeline.planting import (
    FAULTS,
    FILE_SIZE,
    MASTER,
    MESSAGES,
    SLAVE,
    SOUND,
    entries,
    flip,
    flipped,
    last_files_cut_with_records,
    make_pair,
    overwrite,
    position_in,
    read_log,
    record,
    unit_changed,
)
from twinlog.cluster.pipeline.audit.classify import classify
from twinlog.cluster.pipeline.audit.copies import StoreCopy, side_of
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.side_tables import check_tables, own_findings
from twinlog.cluster.pipeline.sources.files import inspect_store
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.integrity.digest import BLOCK_SIZE, floor_block
from twinlog.store.queue.layout import UNIT


def faults_in(found: AuditFindings) -> list[AuditFinding]:
    """Without the older tables of a captured slave of 5.3.3, which stopped before it took its master's."""
    assert found.left_out == 0
    return [each for each in found.kept if each.cls is not FindingClass.LAG or each.offset is not None]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*FAULTS, *SOUND], ids=str)
def test_a_planted_fault_is_found_and_nothing_else(fault, tmp_path):
    """Class, member, place, and the member with the right copy."""
    pair = make_pair(fault.store, tmp_path)
    expected = fault.plant(pair)
    found = faults_in(audited({MASTER: pair.master, SLAVE: pair.slave}))
    for wanted in expected:
        assert [wanted.is_met_by(finding) for finding in found].count(True) == 1, found
    assert len(found) == len(expected), found


def test_a_file_cut_with_records_that_nobody_has(tmp_path):
    """Both logs are equal; the cut is one finding of each member, beside what queues and index say of it."""
    pair = make_pair("4.9.7", tmp_path)
    expected = last_files_cut_with_records(pair)
    found = audited({MASTER: pair.master, SLAVE: pair.slave}).kept
    for wanted in expected:
        assert [wanted.is_met_by(finding) for finding in found].count(True) == 1, found
    assert {each.cls for each in found} == {
        FindingClass.TRUNCATED,
        FindingClass.QUEUE,
        FindingClass.INDEX,
        FindingClass.OFFSETS,
    }


def test_one_missing_file_is_singular(tmp_path):
    """As several are plural."""
    pair = make_pair("own", tmp_path)
    for size, words in ((FILE_SIZE, "1 file is missing before"), (2 * FILE_SIZE, "2 files are missing before")):
        (pair.slave / "commitlog" / f"{size:020d}").unlink()
        report = check_tables(inspect_store(StoreUri(str(pair.slave))))
        assert [each.message for each in report.findings if words in each.message]


def test_there_are_enough_faults():
    """At least 30."""
    assert len(FAULTS) >= 30


def test_three_members_outvote_one(tmp_path):
    """Damage that neither CRC nor digest nor queue shows."""
    pair = make_pair("4.9.7", tmp_path)
    third = shutil.copytree(pair.slave, tmp_path / "third")
    flipped("born", MASTER)(pair)
    (found,) = audited({MASTER: pair.master, SLAVE: pair.slave, "third": third}).kept
    assert (found.cls, found.member, found.good) == (FindingClass.BIT_ROT, MASTER, SLAVE)
    assert "2 of 3" in found.why


@pytest.mark.parametrize("damaged", [MASTER, SLAVE])
@pytest.mark.parametrize("digested", [MASTER, SLAVE])
def test_one_digest_is_enough(damaged, digested, tmp_path):
    """It confirms its own member's bytes, or refutes them."""
    pair = make_pair("own", tmp_path)
    (pair[SLAVE if digested == MASTER else MASTER] / "twinlog" / "digest").unlink()
    (expected,) = flipped("born", damaged)(pair)
    (found,) = audited({MASTER: pair.master, SLAVE: pair.slave}).kept
    assert expected.is_met_by(found)


def test_an_old_digest_of_the_end_proves_nothing(tmp_path):
    """Of a store that was not stopped in order: the end may have been cut, and written anew."""
    pair = make_pair("own", tmp_path)
    entry = entries(pair.master)[-2]
    flip(pair.slave, entry.phy_offset + 47)
    for root in (pair.master, pair.slave):
        (root / "abort").touch()
    (pair.master / "twinlog" / "digest").unlink()
    (found,) = audited({MASTER: pair.master, SLAVE: pair.slave}).kept
    assert (found.cls, found.offset, found.good) == (FindingClass.DIFFERS, entry.phy_offset + 47, None)


def test_damage_to_the_same_record_on_both(tmp_path):
    """Neither copy is sound: the digest of nobody tells in a captured store."""
    pair = make_pair("5.3.3", tmp_path)
    entry = record(pair.master, 40)
    at = entry.phy_offset + position_in(read_log(pair.master, entry.phy_offset, entry.size), "body")
    flip(pair.master, at)
    flip(pair.slave, at + 1)
    (found,) = faults_in(audited({MASTER: pair.master, SLAVE: pair.slave}))
    assert (found.cls, found.member, found.good, found.offset) == (FindingClass.DIFFERS, SLAVE, None, at)


def test_damage_that_all_members_have(tmp_path):
    """Their digests are equal; each record's CRC is not."""
    pair = make_pair("4.9.7", tmp_path)
    at = record(pair.master, 40).phy_offset
    for root in (pair.master, pair.slave):
        flip(root, at + 90)
    found = audited({MASTER: pair.master, SLAVE: pair.slave}).kept
    assert {(each.cls, each.member, each.offset) for each in found if each.cls is FindingClass.BIT_ROT} == {
        (FindingClass.BIT_ROT, MASTER, at),
        (FindingClass.BIT_ROT, SLAVE, at),
    }


@pytest.mark.parametrize("store", ["4.9.7", "own"])
def test_files_of_the_log_may_be_checked_apart(store, tmp_path):
    """In tasks of their own, the answers put together."""
    pair = make_pair(store, tmp_path)
    unit_changed(SLAVE, 60, lambda *_: (0, 0, 0))(pair)
    files = inspect_store(StoreUri(str(pair.slave)))
    assert tables_in_parts("slave", files) == own_findings("slave", check_tables(files)) != []


def flipped_at(data: bytes, places: list[int]) -> bytes:
    bad = bytearray(data)
    for at in places:
        bad[at] ^= 1
    return bytes(bad)


def test_records_larger_than_any_look_ahead(tmp_path):
    """With a maxMessageSize of its own: the CRC is that of the whole body, wherever in it the damage is."""
    data, placed = logs.records([logs.message(n, bytes([n]) * (9 << 20)) for n in range(4)], 0, file_size := 64 << 20)
    flips = [placed[0].phy_offset + 1000, placed[2].phy_offset + (9 << 20) - 1000]
    bad = flipped_at(data, flips)
    with ExitStack() as opened:
        copies = [
            opened.enter_context(closing(StoreCopy(side_of(name, files), files)))
            for name, image in ((MASTER, data), (SLAVE, bad))
            for files in [logs.store_files(tmp_path / name, image, 0, file_size)]
        ]
        found = [each for at in flips for each in classify(copies, floor_block(at), floor_block(at) + BLOCK_SIZE)]
    assert [(each.cls, each.member, each.offset, each.good) for each in found] == [
        (FindingClass.BIT_ROT, SLAVE, at, MASTER) for at in flips
    ]


def test_very_many_wrong_units_are_told_in_few(tmp_path):
    """The first ones each, the others as one that counts for them."""
    pair = make_pair("own", tmp_path)
    for path in (pair.slave / "consumequeue").glob("*/*/*"):
        units = [UNIT.pack(at, size + 1, code) for at, size, code in UNIT.iter_unpack(path.read_bytes()) if size]
        overwrite(path, 0, b"".join(units))
    found = own_findings(SLAVE, check_tables(inspect_store(StoreUri(str(pair.slave)))))
    assert {(each.cls, each.member) for each in found} == {(FindingClass.QUEUE, SLAVE)}
    assert (len(found), sum(each.count for each in found)) == (201, MESSAGES)

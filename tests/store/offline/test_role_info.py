"""Epochs and the promised epoch in `log info`."""

import pytest
from attrs import evolve

from tests.helpers import open_store, put
from twinlog.cluster.cli.log.info import show_info
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId, save_epochs
from twinlog.store.member_file import MemberFile, save_member
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import FindingKind, Severity
from twinlog.store.offline.info import inspect
from twinlog.store.offline.role_info import EpochInfo, MemberInfo, check_role_files
from twinlog.store.offline.verify.verify import VerifyVerdict, verify
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, save_role


@pytest.fixture
def root(tmp_path):
    put(open_store(tmp_path), b"x")
    return tmp_path


def looked(root):
    with StoreDirectory.open(root) as directory:
        return inspect(directory)


def test_a_log_of_one_master_says_nothing(root, capsys):
    info = looked(root)
    assert (info.member, info.history, info.role) == (None, None, None)
    show_info(info, "pretty")
    said = capsys.readouterr().out
    assert "epoch" not in said
    assert "member" not in said


def test_who_the_member_is(root, capsys):
    member = MemberFile(id="m1", register_codes=("a",), made_ms=7, made_address="10.0.0.1:10911")
    save_member(root / "twinlog", member)
    info = looked(root)
    assert info.member == MemberInfo(
        id="m1", made_ms=7, made_address="10.0.0.1:10911", group=None, cluster=None, error=None
    )
    show_info(info, "pretty")
    said = capsys.readouterr().out
    assert "m1, made " in said
    assert " under 10.0.0.1:10911\n" in said
    save_member(root / "twinlog", evolve(member, group="broker-a", cluster="C"))
    show_info(looked(root), "pretty")
    assert " under 10.0.0.1:10911; of broker-a in C\n" in capsys.readouterr().out


def test_epochs_and_the_promise(root, capsys):
    entry = EpochEntry(
        epoch=4,
        winner="m2",
        winner_label="broker-a-1 (10.0.0.2:10911)",
        start_offset=1234,
        at_ms=9,
        kind="forced",
        old="a:1",
        lost_bytes=None,
    )
    save_epochs(root / "twinlog", (FIRST, entry))
    other = GroupMember(address="10.0.0.3:10911", ha_address="", broker_id=2, name="broker-a-2", id="m3")
    record = GroupRecord(version=1, members=(other,), acks_needed=1, master_role=BrokerRole.SYNC_MASTER)
    state = RoleState(role=BrokerRole.SLAVE, broker_id=1, promised=EpochId(5, "m3"), group=record, whole=False)
    save_role(root / "twinlog", state)
    info = looked(root)
    assert info.history.epochs[1] == EpochInfo(
        epoch=4,
        winner="m2",
        winner_label="broker-a-1 (10.0.0.2:10911)",
        start_offset=1234,
        began_ms=9,
        kind="forced",
        reason="",
        old_master="a:1",
        lost_bytes=None,
    )
    assert (info.role.role, info.role.promised_epoch, info.role.is_whole) == ("SLAVE", 5, False)
    assert (info.role.promised_winner, info.role.promised_winner_label) == ("m3", "broker-a-2 (10.0.0.3:10911)")
    show_info(info, "pretty")
    said = capsys.readouterr().out
    assert "SLAVE, brokerId 1; promised epoch 5 to broker-a-2 (10.0.0.3:10911); may lack what it acknowledged\n" in said
    assert "4 from 1234 on: broker-a-1 (10.0.0.2:10911), forced, " in said


def flip(path, position):
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def member(root):
    """Of a group; its log ends in epoch 1."""
    entry = EpochEntry(epoch=1, winner="10.0.0.2:10911", start_offset=0, kind="failover")
    save_epochs(root / "twinlog", (FIRST, entry))
    state = RoleState(role=BrokerRole.SLAVE, broker_id=1, promised=entry.id, group=None, member="m1")
    save_role(root / "twinlog", state)
    save_member(root / "twinlog", MemberFile(id="m1", register_codes=("a", "b")))
    return root


def found_by_verify(root):
    with StoreDirectory.open(root) as directory:
        report = verify(directory)
    return [finding for finding in report.findings if finding.kind is FindingKind.ROLE_FILE], report.verdict


@pytest.mark.parametrize("name", ["epochs", "role", "member"])
def test_a_damaged_file_is_found_and_what_to_do_is_said(member, name, capsys):
    assert found_by_verify(member)[0] == []
    flip(member / "twinlog" / name, 60)
    (finding,), verdict = found_by_verify(member)
    assert (finding.severity, finding.file, verdict) == (Severity.ERROR, f"twinlog/{name}", VerifyVerdict.DAMAGED)
    assert "its checksum is wrong" in finding.message
    assert "twinlog failover" in finding.message
    info = looked(member)
    assert [problem for problem in info.problems if problem.kind is FindingKind.ROLE_FILE] == [finding]
    show_info(info, "pretty")
    said = capsys.readouterr().out
    assert said.count("Next: ") == 1, "not twice"
    assert f"error: twinlog/{name}: " in said


def test_two_members_in_one_directory_are_found(member):
    save_member(member / "twinlog", MemberFile(id="m2"))
    (finding,), verdict = found_by_verify(member)
    assert (finding.severity, finding.file, verdict) == (Severity.ERROR, "twinlog/member", VerifyVerdict.DAMAGED)
    assert "twinlog/member is of the member m2, and " in finding.message
    assert "twinlog/role of m1: " in finding.message


@pytest.mark.slow
def test_every_byte_of_the_files_is_covered(member):
    for name in ("epochs", "role", "member"):
        path = member / "twinlog" / name
        sound = path.read_bytes()
        for position in range(len(sound)):
            flip(path, position)
            with StoreDirectory.open(member) as directory:
                assert [finding.file for finding in check_role_files(directory, None)] == [f"twinlog/{name}"], position
            path.write_bytes(sound)


async def test_an_epoch_behind_the_end_of_a_log_that_stands_still(tmp_path):
    store = open_store(tmp_path)
    put(store, b"x")
    await store.close()
    entries = (FIRST, EpochEntry(epoch=1, winner="10.0.0.2:10911", start_offset=1 << 30, kind="failover"))
    save_epochs(tmp_path / "twinlog", entries)
    (finding,), verdict = found_by_verify(tmp_path)
    assert (finding.severity, verdict) == (Severity.WARNING, VerifyVerdict.WARNINGS)
    assert finding.phy_offset == 1 << 30


def test_files_that_make_no_sense_are_told(root):
    for name in ("epochs", "role", "member"):
        (root / "twinlog").mkdir(exist_ok=True)
        (root / "twinlog" / name).write_bytes(b"nonsense")
    info = looked(root)
    assert "does not begin with twinlog-epochs" in info.history.error
    assert "does not begin with twinlog-role" in info.role.error
    assert "does not begin with twinlog-member" in info.member.error

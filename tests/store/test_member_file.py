"""Who a member is: the file, and what may stand in it."""

from pathlib import Path

import pytest
from attrs import evolve

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import (
    CODES_MAX,
    NAME,
    MemberFile,
    check_group,
    check_is_one_member,
    decode_member,
    encode_member,
    in_group,
    is_successor,
    load_member,
    member_at_start,
    save_member,
    started,
)

MEMBER = MemberFile(id="m1", register_codes=("a", "b"), made_ms=7, made_address="10.0.0.1:10911")


def at_start(side: Path, known_as: str, address: str, now_ms: int) -> MemberFile:
    member = member_at_start(side, known_as, address, now_ms)
    save_member(side, member)
    return member


def test_there_and_back():
    assert decode_member(encode_member(MEMBER)) == MEMBER
    assert encode_member(MEMBER).startswith(b"twinlog-member 1 ")


def test_it_is_made_once_and_each_start_adds_a_code(tmp_path):
    first = at_start(tmp_path, "", "10.0.0.1:10911", 5)
    again = at_start(tmp_path, "", "10.0.0.9:10999", 6)
    assert first.id.startswith("m")
    assert (again.id, again.made_ms, again.made_address) == (first.id, 5, "10.0.0.1:10911")
    assert again.register_codes[:-1] == first.register_codes
    assert again.register_codes[-1] not in first.register_codes
    assert load_member(tmp_path) == again
    assert at_start(tmp_path / "other", "", "10.0.0.1:10911", 5).id != first.id


def test_a_member_that_older_files_name_by_its_address_keeps_that(tmp_path):
    assert at_start(tmp_path, "10.0.0.1:10911", "10.0.0.2:10911", 5).id == "10.0.0.1:10911"
    assert at_start(tmp_path, "", "10.0.0.2:10911", 6).id == "10.0.0.1:10911"


def test_a_file_that_is_there_wins_over_what_others_say(tmp_path):
    save_member(tmp_path, MEMBER)
    assert at_start(tmp_path, "10.0.0.7:1", "10.0.0.7:1", 5).id == "m1"


def test_codes_are_bounded():
    member = MEMBER
    for number in range(100):
        member = started(member, str(number))
    assert member.register_codes == tuple(str(number) for number in range(100 - CODES_MAX, 100))


@pytest.mark.parametrize(
    ("codes", "seen", "follows"),
    [
        pytest.param(("a", "b"), "b", True, id="the same start"),
        pytest.param(("a", "b", "c"), "a", True, id="later starts"),
        pytest.param(("a", "x"), "b", False, id="a copy, of before that start"),
        pytest.param(("a",), "", True, id="nothing was seen"),
        pytest.param((), "a", True, id="twinlog 0.2 has none"),
    ],
)
def test_a_copy_does_not_know_the_code_that_was_seen_last(codes, seen, follows):
    assert is_successor(codes, seen) is follows


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(encode_member(MEMBER)[:-3] + b"x}\n", "checksum", id="damaged"),
        pytest.param(
            encode_member(MEMBER).replace(b"member 1", b"member 2"), "version 2 is not known here", id="later version"
        ),
        pytest.param(encode_member(evolve(MEMBER, id="")), "it has no id", id="no id"),
        pytest.param(b"", "twinlog-member", id="empty"),
    ],
)
def test_what_cannot_be_read_ends_the_start(tmp_path, raw, why):
    (tmp_path / NAME).write_bytes(raw)
    with pytest.raises(StoreDirectoryError, match=why) as error:
        at_start(tmp_path, "", "10.0.0.1:10911", 5)
    assert "Next:" in str(error.value)
    assert (tmp_path / NAME).read_bytes() == raw, "it is left as it is"


def test_an_address_that_was_not_known_is_noted_at_the_first_start(tmp_path):
    save_member(tmp_path, MemberFile(id="m1", made_ms=7))
    assert at_start(tmp_path, "", "10.0.0.1:10911", 5).made_address == "10.0.0.1:10911"
    assert at_start(tmp_path, "", "10.0.0.2:10911", 6).made_address == "10.0.0.1:10911"


def test_a_member_stays_in_its_first_group(tmp_path):
    member = in_group(MEMBER, "broker-a", "C")
    assert (member.group, member.cluster) == ("broker-a", "C")
    assert in_group(member, "broker-b", "D") == member
    check_group(tmp_path, MEMBER, "broker-b", "C")  # It was in none yet.
    check_group(tmp_path, member, "broker-a", "C")


@pytest.mark.parametrize(("group", "cluster"), [("broker-b", "C"), ("broker-a", "D")])
def test_another_group_or_cluster_is_refused_and_what_to_do_is_said(tmp_path, group, cluster):
    member = in_group(MEMBER, "broker-a", "C")
    with pytest.raises(StoreDirectoryError) as error:
        check_group(tmp_path / "twinlog", member, group, cluster)
    said = str(error.value)
    assert "m1, a member of brokerName broker-a, brokerClusterName C" in said
    assert f"the configuration says brokerName {group}, brokerClusterName {cluster}" in said
    assert "Next: correct the two names, or storePathRootDir; " in said
    assert said.endswith(f"twinlog log new-member {tmp_path}")


def test_two_members_in_one_directory_are_refused_and_what_to_do_is_said(tmp_path):
    check_is_one_member(tmp_path, "m1", "m1")
    check_is_one_member(tmp_path, "m1", "")  # twinlog 0.2 does not say.
    with pytest.raises(StoreDirectoryError) as error:
        check_is_one_member(tmp_path / "twinlog", "m1", "m2")
    said = str(error.value)
    assert f"{tmp_path}/twinlog/member is of the member m1, and {tmp_path}/twinlog/role of m2" in said
    assert said.endswith(f"twinlog log new-member {tmp_path}")

"""The durable role state as a file: round trip, and rejected files."""

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.role_file import (
    NAME,
    VERSION,
    Change,
    GroupMember,
    GroupRecord,
    Pause,
    RoleState,
    Scheduled,
    decode_role,
    encode_role,
    load_role,
    save_role,
)
from twinlog.store.util.checked_file import decode_checked, encode_checked
from twinlog.store.util.plain import from_plain, to_plain

numbers, texts = st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=12)
members = st.builds(
    GroupMember,
    address=texts,
    ha_address=texts,
    broker_id=numbers,
    name=texts,
    votes=st.booleans(),
    id=texts,
    codes=st.lists(texts, max_size=2).map(tuple),
)
groups = st.builds(
    GroupRecord,
    version=numbers,
    members=st.lists(members, max_size=4).map(tuple),
    acks_needed=numbers,
    master_role=st.sampled_from(BrokerRole),
    paused=st.none() | st.builds(Pause, until_ms=st.none() | numbers, reason=texts),
    epoch=numbers,
    loss_free_from=st.none() | numbers,
)
states = st.builds(
    RoleState,
    role=st.sampled_from(BrokerRole),
    broker_id=numbers,
    promised=st.builds(EpochId, numbers, texts),
    group=st.none() | groups,
    whole=st.booleans(),
    clean=st.booleans(),
    boot_id=texts,
    change=st.none()
    | st.builds(
        Change,
        verb=texts,
        epoch=numbers,
        candidate=texts,
        reason=texts,
        forced=st.booleans(),
        started_ms=numbers,
        step=texts,
    ),
    scheduled=st.none() | st.builds(Scheduled, at_ms=numbers, candidate=texts, reason=texts),
    told_confirmed=numbers,
)
GROUP = GroupRecord(
    version=7,
    members=(
        GroupMember(address="10.0.0.1:10911", ha_address="10.0.0.1:10912", broker_id=0, name="broker-a-0"),
        GroupMember(address="10.0.0.9:10911", ha_address="", broker_id=2, name="Java", votes=False),
    ),
    acks_needed=2,
    master_role=BrokerRole.SYNC_MASTER,
)
STATE = RoleState(role=BrokerRole.SLAVE, broker_id=1, promised=EpochId(4, "10.0.0.1:10911"), group=GROUP)


@given(states)
def test_what_was_written_is_read(state):
    read = decode_role(encode_role(state))
    assert read == state
    assert type(read.promised) is EpochId


def test_no_file_is_no_role(tmp_path):
    assert load_role(tmp_path / "twinlog") is None


def test_a_role_is_replaced(tmp_path):
    side = tmp_path / "twinlog"
    save_role(side, STATE)
    save_role(side, attrs.evolve(STATE, whole=False))
    assert load_role(side) == attrs.evolve(STATE, whole=False)
    assert [path.name for path in side.iterdir()] == [NAME]


def test_no_changed_byte_is_believed():
    for at in range(len(encode_role(STATE))):
        raw = bytearray(encode_role(STATE))
        raw[at] ^= 1
        with pytest.raises(ValueError, match=r"."):
            decode_role(bytes(raw))


def test_a_damaged_file_ends_the_start(tmp_path):
    """Taken for none, it would let this member vote twice."""
    (tmp_path / NAME).write_bytes(encode_role(STATE)[:-5])
    with pytest.raises(StoreDirectoryError, match="votes, which cannot be guessed"):
        load_role(tmp_path)


def test_a_file_that_cannot_be_read_ends_the_start(tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(StoreDirectoryError, match="Is a directory"):
        load_role(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("role", "MASTER"),
        ("brokerId", "1"),
        ("brokerId", True),
        ("promised", [4, "a"]),
        ("promised", {"epoch": 4}),
        ("group", {"version": 1}),
        ("group", []),
        ("whole", 1),
        ("toldConfirmed", None),
    ],
)
def test_a_value_of_another_kind_is_not_believed(key, value):
    raw = encode_checked(NAME, VERSION, to_plain(STATE) | {key: value})
    with pytest.raises(ValueError, match=key):
        decode_role(raw)


def test_a_record_of_before_says_nothing_of_other_acknowledgements():
    """Its master writes them again; until then no other member takes over without loss."""
    plain = to_plain(STATE)
    assert "lossFreeFrom" in plain["group"]
    del plain["group"]["lossFreeFrom"]
    assert decode_role(encode_checked(NAME, VERSION, plain)).group.loss_free_from is None


def test_what_is_missing_and_has_a_default_takes_it():
    """A later version may write less, or more."""
    plain = to_plain(STATE) | {"shoeSize": 44}
    del plain["whole"]
    assert decode_role(encode_checked(NAME, VERSION, plain)) == STATE
    del plain["promised"]
    with pytest.raises(ValueError, match="promised"):
        decode_role(encode_checked(NAME, VERSION, plain))


def test_a_person_can_read_it():
    head, _, body = encode_role(STATE).partition(b"\n")
    assert head.startswith(b"twinlog-role 1 ")
    assert orjson.loads(body)["group"]["members"][1]["haAddress"] == ""


@given(st.binary(max_size=60))
def test_no_other_bytes_are_believed(raw):
    with pytest.raises(ValueError, match=r"."):
        decode_checked(NAME, VERSION, raw)


def test_a_list_says_where_it_is_wrong():
    plain = to_plain(GROUP)
    plain["members"][1]["votes"] = "no"
    with pytest.raises(ValueError, match=r"members\[1\]\.votes is 'no'"):
        from_plain(GroupRecord, plain)


def test_a_file_that_names_addresses_is_of_the_version_before(tmp_path):
    """As long as twinlog 0.2 can read it."""
    assert encode_role(STATE).startswith(b"twinlog-role 1 ")
    assert STATE.group is not None
    first, *others = STATE.group.members
    moved = attrs.evolve(STATE.group, members=(attrs.evolve(first, address="10.0.0.9:10911"), *others))
    assert moved.members[0].id == first.id, "it keeps its id"
    state = attrs.evolve(STATE, group=moved)
    assert encode_role(state).startswith(b"twinlog-role 2 ")
    assert encode_role(attrs.evolve(STATE, before=moved)).startswith(b"twinlog-role 2 ")
    assert decode_role(encode_role(state)) == state


def test_a_member_without_an_id_is_named_by_its_address():
    member = GroupMember(address="10.0.0.1:10911", ha_address="10.0.0.1:10912", broker_id=1, name="b")
    assert member.id == member.address
    assert from_plain(GroupMember, {key: value for key, value in to_plain(member).items() if key != "id"}) == member


def test_a_person_names_a_member_by_id_address_or_name():
    def member(id: str, address: str, name: str) -> GroupMember:
        return GroupMember(address=address, ha_address=address, broker_id=1, name=name, id=id)

    members = (member("m1", "a:1", "x"), member("m2", "b:1", "y"), member("m3", "c:1", "y"))
    record = attrs.evolve(STATE.group, members=members)
    assert record.find("m1") is record.find("a:1") is record.find("x") is members[0]
    assert record.find("m3") is members[2]
    assert record.find("y") is None, "two have this name"
    assert record.find("z") is None
    assert record.address_of("m2") == "b:1"
    assert record.address_of("z") == "z"
    assert record.label("m2") == "y (b:1)"

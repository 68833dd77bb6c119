"""The record names each member once, where it is: right ones, and each wrong one."""

from attrs import evolve

from scripts.fault_matrix.checkers.record import each_named_once
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

ADDRESSES = {"a": "127.0.0.1:1", "b": "127.0.0.2:1"}
MEMBERS = tuple(
    GroupMember(address=address, ha_address=address, broker_id=number, name=name, id=f"m{number}")
    for number, (name, address) in enumerate(ADDRESSES.items())
)
RECORD = GroupRecord(version=3, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)


def holds(first, second=RECORD):
    return each_named_once({"a": first, "b": second}, ADDRESSES).holds


def test_all_are_named_once_where_they_are():
    assert holds(RECORD)
    assert holds(evolve(RECORD, members=MEMBERS[::-1]))


def test_one_is_named_where_it_was():
    assert not holds(evolve(RECORD, members=(MEMBERS[0], evolve(MEMBERS[1], address="127.0.0.1:2"))))


def test_one_is_named_twice():
    again = evolve(MEMBERS[1], id="m7", address="127.0.0.1:2")
    assert not holds(evolve(RECORD, members=(*MEMBERS, again)), evolve(RECORD, members=(*MEMBERS, again)))


def test_one_is_missing_or_nobody_is_there():
    assert not holds(evolve(RECORD, members=MEMBERS[:1]))
    assert not holds(None)
    assert not each_named_once({}, ADDRESSES).holds


def test_members_disagree_on_an_id():
    other = evolve(RECORD, members=(MEMBERS[0], evolve(MEMBERS[1], id="m7")))
    assert holds(other, other)
    assert not holds(other)
    same = evolve(RECORD, members=(MEMBERS[0], evolve(MEMBERS[1], id="m0")))
    assert not holds(same, same)

"""Whether others can give back what a member lost: what it has saved of its group says so."""

import pytest
from attrs import evolve

from tests.cluster.broker.helpers import make_broker
from twinlog.cluster.broker.group.group_view import is_replicated
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, save_role

HERE = "127.0.0.1:10911"
MEMBERS = (
    GroupMember(address=HERE, ha_address="127.0.0.1:10912", broker_id=0, name="a-0"),
    GroupMember(address="127.0.0.2:10911", ha_address="127.0.0.2:10912", broker_id=1, name="a-1"),
)
REAL = evolve(MEMBERS[1], votes=False)
PAIR = GroupRecord(version=1, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
ALONE = evolve(PAIR, acks_needed=1)


@pytest.mark.parametrize(
    ("group", "before", "told"),
    [
        (PAIR, None, True),
        (PAIR, PAIR, True),
        (ALONE, None, False),
        (PAIR, ALONE, False),  # What holds is not known.
        (evolve(PAIR, members=(MEMBERS[0], REAL)), None, False),  # A slave of RocketMQ's gives nothing back.
        (None, None, False),
    ],
)
def test_only_where_nothing_is_acknowledged_alone(tmp_path, group, before, told):
    role, promised = BrokerRole.SYNC_MASTER, EpochId(0, HERE)
    state = RoleState(role=role, broker_id=0, promised=promised, group=group, before=before, address=HERE)
    save_role(tmp_path / "twinlog", state)
    assert is_replicated(state) is told
    assert make_broker(tmp_path).store.is_replicated is told


def test_a_member_without_a_record_has_nobody(tmp_path):
    assert not is_replicated(None)
    assert not make_broker(tmp_path).store.is_replicated

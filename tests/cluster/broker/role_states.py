"""The role states of a group of two, as its members keep them."""

from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

ASYNC, SYNC, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


A, B = "127.0.0.1:10911", "127.0.0.1:10921"


RECORD = GroupRecord(
    version=1,
    members=(
        GroupMember(address=A, ha_address="127.0.0.1:10912", broker_id=0, name="a"),
        GroupMember(address=B, ha_address="127.0.0.1:10922", broker_id=1, name="b"),
    ),
    acks_needed=1,
    master_role=ASYNC,
)


def state(role=ASYNC, broker_id=0, epoch=1, winner=A, **more) -> RoleState:
    return RoleState(role=role, broker_id=broker_id, promised=EpochId(epoch, winner), group=RECORD, **more)

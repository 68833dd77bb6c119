"""haAllowedSlaves and the group's record: whom an election does not know of must not make a message safe."""

import pytest
import trio
from trio.testing import memory_stream_pair

from tests.helpers import RecordingSink, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.peer import NoRole
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

STRANGER = "10.1.1.9"


def _record() -> GroupRecord:
    members = [
        GroupMember(address=f"10.1.1.{n}:1", ha_address=f"10.1.1.{n}:2", broker_id=n, name=f"b{n}") for n in (0, 1)
    ]
    return GroupRecord(version=1, members=tuple(members), acks_needed=2, master_role=BrokerRole.SYNC_MASTER)


class Role(NoRole):
    def __init__(self, group: GroupRecord | None) -> None:
        self.group = group


@pytest.mark.parametrize("group", [None, _record()], ids=["no record", "a record"])
async def test_an_allowed_slave_counts_only_where_there_is_no_record(autojump_clock, nursery, tmp_path, group):
    """The other member may be elected alone: two of two hold what is acknowledged, and the stranger is neither."""
    store = open_store(tmp_path / "master")
    put(store, b"first")
    ha = HAService(store, HAConfig(allowed_slaves="10.0.0.0/8"), lambda: ("10.1.1.1",), lambda: None)
    ha.use_role(Role(group))
    ha.members_changed(("10.1.1.1",))
    nursery.start_soon(ha.group_transfer.run)
    ours, theirs = memory_stream_pair()
    nursery.start_soon(ha.serve, StreamTransport(theirs), f"{STRANGER}:1", STRANGER)
    await ours.send_all(ACK.pack(0))
    await trio.testing.wait_all_tasks_blocked()
    sink = RecordingSink()
    ha.group_transfer.wait(put(store, b"x"), sink, b"x")
    await trio.testing.wait_all_tasks_blocked()
    await ours.send_all(ACK.pack(store.max_offset))
    await trio.sleep(1)
    assert bool(sink.answered) is (group is None)

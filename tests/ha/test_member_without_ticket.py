"""A slave that connected before it was registered, and so without a ticket: its member counts by its id, and not by its IP."""

import trio
from attrs import evolve
from trio.testing import memory_stream_pair

from tests.helpers import RecordingSink, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.master.tickets import Holder
from twinlog.ha.peer import NoRole
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

IP = "10.1.1.1"


def member(number: int) -> GroupMember:
    address = f"10.1.1.{number}"
    return GroupMember(
        address=f"{address}:1",
        ha_address=f"{address}:2",
        broker_id=number,
        name=f"b{number}",
        id=f"m{number}",
        codes=(f"c{number}",),
    )


class Role(NoRole):
    def me(self) -> GroupMember:
        return member(0)


async def test_it_connects_again_with_a_ticket(autojump_clock, nursery, tmp_path):
    """Once the record has it: it would follow for ever, and no producer be told that a message is safe."""
    store = open_store(tmp_path / "master")
    put(store, b"first")
    welcome = (IP,)
    ha = HAService(
        store,
        HAConfig(),
        lambda: (IP,),
        lambda: None,
        welcome=lambda: welcome,
        host_ips=lambda host: (host,),
    )
    role = Role()
    ha.use_role(role)
    ha.members_changed((IP,))
    nursery.start_soon(ha.group_transfer.run)

    async def connect(*reports: int) -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        connection = ha._connection(StreamTransport(theirs), f"{IP}:1", IP)
        nursery.start_soon(ha._serve, connection)
        for report in reports:
            await ours.send_all(ACK.pack(report))
        await trio.testing.wait_all_tasks_blocked()
        return ours

    async def is_open(stream: trio.abc.Stream) -> bool:
        with trio.move_on_after(1):
            while await stream.receive_some():
                pass
            return False
        return True

    early = await connect(0)
    assert await is_open(early)
    role.group = GroupRecord(
        version=2, members=(member(0), member(1)), acks_needed=2, master_role=BrokerRole.SYNC_MASTER
    )
    ha.members_changed(("m1",))
    assert not await is_open(early)
    late = await connect(ha.ticket_for(Holder("m1")), 0)
    ha.members_changed(("m1",))
    assert await is_open(late)
    sink = RecordingSink()
    ha.group_transfer.wait(put(store, b"x"), sink, b"x")
    await trio.testing.wait_all_tasks_blocked()
    await late.send_all(ACK.pack(store.max_offset))
    await trio.sleep(1)
    assert sink.answered
    other = await connect(0)  # Another one at that IP, which is no member, or not yet.
    ha.members_changed(("m1",))
    assert await is_open(other)
    role.group = evolve(role.group, members=(member(0), evolve(member(1), codes=())))
    ha.members_changed((IP,))
    assert await is_open(other), "A member that has no tickets counts by its IP"

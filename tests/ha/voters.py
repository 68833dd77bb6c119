"""A group of three with one change of masters in its history, and a voter of it."""

from attrs import evolve

from twinlog.ha.election.voter import VoteRequest, decide_vote
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

MEMBERS = tuple(GroupMember(address=name, ha_address=name, broker_id=n, name=name) for n, name in enumerate("abc"))
GROUP = GroupRecord(version=4, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
OWN = EpochEntry(epoch=2, winner="a", start_offset=50)
HISTORY = (FIRST, OWN)
MASTER = RoleState(role=BrokerRole.SYNC_MASTER, broker_id=0, promised=OWN.id, group=GROUP)
SLAVE = evolve(MASTER, role=BrokerRole.SLAVE, broker_id=1)


def named(address: str) -> GroupMember:
    return GroupMember(address=address, ha_address=address, broker_id=1, name=address)


def asked(state: RoleState, ask: VoteRequest, *, paused_end: int | None = None, address: str = "b"):
    return decide_vote(state, HISTORY, 10, 90, paused_end, ask, named(address))

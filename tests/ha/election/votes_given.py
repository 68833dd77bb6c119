"""A group's record, and answers of its voters; tests change what they are about."""

from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.voter import VoteReply
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord

SECOND = with_entry((FIRST,), EpochEntry(epoch=2, winner="a", start_offset=100))


def group(size: int, acks_needed: int, *, not_voting: str = "") -> GroupRecord:
    members = tuple(
        GroupMember(address=name, ha_address=name, broker_id=number, name=name, votes=name not in not_voting)
        for number, name in enumerate("abcd"[:size])
    )
    return GroupRecord(
        version=2, members=members, acks_needed=acks_needed, master_role=BrokerRole.SYNC_MASTER, loss_free_from=100
    )


def answer(address: str, max_offset: int, entries: tuple[EpochEntry, ...] = SECOND, **more: object) -> VoteReply:
    said = {"granted": True, "why": "", "whole": True, "is_master": False, "group": None} | more
    return VoteReply(
        promised=EpochId(3, "b"), entries=entries, max_offset=max_offset, min_offset=0, address=address, **said
    )


def said(*answers: VoteReply) -> dict[str, VoteReply]:
    return {answer.address: answer for answer in answers}

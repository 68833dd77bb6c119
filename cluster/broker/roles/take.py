"""An elected candidate becomes the master of its epoch: its own entry, then its role, each durable before the next."""

import structlog
from attrs import evolve

from twinlog.cluster.broker.peers.role_messages import ChangeAsk
from twinlog.cluster.broker.roles.member import RoleMember
from twinlog.cluster.broker.roles.survey import Survey
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import with_ids_swapped, won_at
from twinlog.ha.election.votes import Judgement, group_of
from twinlog.store.config import FlushDiskType
from twinlog.store.epoch_file import EpochEntry

log = structlog.get_logger(__name__)


async def take(member: RoleMember, survey: Survey, entry: EpochEntry) -> None:
    """Holding `turn`, and with the promise of this very epoch. Again, after a crash in between, too. Raises RoleFileError."""
    state = member.state_or_first()
    assert state.promised == entry.id
    if member.book.last.id != entry.id:
        await member.book.save_entries(with_entry(member.book.entries, entry))
    group = group_of(state.group, survey.answers)
    assert group is not None
    member.book.lacks_tail = False  # What it writes from now on nobody else has written.
    record = won_at(with_ids_swapped(group, member.address, entry.epoch), member.book.last.start_offset)
    await member.book.save(evolve(state, role=group.master_role, broker_id=0, group=record, before=group, whole=True))
    member.store.accept_end()


async def begin_again(member: RoleMember) -> None:
    """A new epoch of the master that had the last one, where its log ends now: its machine died, and slaves may hold a tail that
    it lost. Holding `turn`. Raises RoleFileError.

    Only where nobody else had to hold what was acknowledged: then nobody is elected without this member's promise, but by force,
    and such a winner leaves numbers free (RoleRun). A crash between the two saves leaves the entry, which is a promise itself.
    """
    state, book, end = member.state_or_first(), member.book, member.store.max_offset
    assert state.group is not None
    entry = EpochEntry(
        epoch=max(state.promised.epoch, book.last.epoch) + 1,
        winner=member.address,
        start_offset=end,
        at_ms=member.now_ms(),
        kind="restart",
        reason="its machine died, or its disk failed",
        old=member.address,
        lost_bytes=0 if member.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH else None,
    )
    await book.save_entries(with_entry(book.entries, entry))
    book.lacks_tail = False
    record = won_at(with_ids_swapped(state.group, member.address, entry.epoch), end)
    await book.save(evolve(state, promised=entry.id, group=record, before=state.group, whole=True))
    log.warning(
        "what slaves have behind the end of this log is given up, and kept in twinlog/divergent: its machine or disk failed",
        epoch=entry.epoch,
        max_offset=end,
    )


def entry_of(
    member: RoleMember, ask: ChangeAsk, epoch: int, old_master: str, judgement: Judgement | None
) -> EpochEntry:
    """What begins where the log ends now; a loss that somebody accepted is named in it."""
    forced = judgement is not None and judgement.forced
    lost = judgement.lost if judgement is not None and forced else None
    lost_bytes: int | None = 0
    if lost is not None:
        lost_bytes = lost.end - lost.first if lost.end is not None else None
    return EpochEntry(
        epoch=epoch,
        winner=member.address,
        start_offset=member.store.max_offset,
        at_ms=member.now_ms(),
        kind="forced" if forced else ask.verb,
        reason=ask.reason,
        old=old_master,
        lost_bytes=lost_bytes,
    )

"""Planted faults that rows notice by what clients were told, by what is in the logs, or by what does not come back.

A row names one once it has been seen to notice it.
"""

import time
from collections.abc import Collection, Iterator
from typing import Any
from unittest.mock import patch

import trio
from attrs import evolve

import twinlog.cluster.broker.roles.lease
import twinlog.store.services.flush
from scripts.fault_matrix import failpoints
from scripts.fault_matrix.planted import all_of, planted
from twinlog.cluster.broker.group.registration import RegistrationService
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.policy.auto_resync import BeginAnew, Resync
from twinlog.ha.slave.replica import Replica
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, GroupRecord
from twinlog.store.services.flush import FlushService
from twinlog.store.util.sync import SyncError

assert failpoints  # Its change is listed with the others once it is imported.

PATIENCE_S = 1.5
LONG = 16  # Records.


@planted("what arrives in pieces is not dispatched")
def pieces_not_dispatched() -> Iterator[None]:
    """A slave appends a record of which a part came first, and forgets to put it into its queue."""
    append, append_replicated = Replica._append, MessageStore.append_replicated
    in_pieces: list[bool] = []

    def note(self: Replica) -> None:
        in_pieces[:] = [True] * (self._needed > 0)
        append(self)

    def lossy(self: MessageStore, data: Any, entries: Any) -> None:
        append_replicated(self, data, entries[1:] if in_pieces and isinstance(entries, list) else entries)

    with patch.object(Replica, "_append", note), patch.object(MessageStore, "append_replicated", lossy):
        yield


@planted("the end of a long batch is not dispatched")
def long_batch_cut() -> Iterator[None]:
    """A slave that has much to catch up with puts the first records of what comes into their queues only."""
    append_replicated = MessageStore.append_replicated

    def lossy(self: MessageStore, data: Any, entries: Any) -> None:
        append_replicated(self, data, entries[:LONG] if isinstance(entries, list) else entries)

    with patch.object(MessageStore, "append_replicated", lossy):
        yield


@planted("a disk that is slow has failed")
def slow_is_failed() -> Iterator[None]:
    """A sync that takes its time counts as one that failed, and that is for ever."""
    sync = twinlog.store.services.flush._sync

    async def impatient(dirty: list[tuple[MappedFile, int]], directories: Collection[Any]) -> None:
        began = time.monotonic()
        await sync(dirty, directories)
        if time.monotonic() > began + PATIENCE_S:
            raise SyncError(5, "this took too long")

    with patch.object(twinlog.store.services.flush, "_sync", impatient):
        yield


@planted("an OK does not wait for the disk")
def ok_before_disk() -> Iterator[None]:
    """Synchronous flush: it is under way when the producer is answered."""

    def at_once(self: FlushService, end_offset: int, sink: Any, frame: bytes) -> None:
        self.request()
        sink.answer([frame])

    with patch.object(FlushService, "wait", at_once):
        yield


@planted("what a power cut took is taken from all")
def lost_by_all() -> Iterator[None]:
    """A master that lost what it had flushed in words only goes on, and its slaves, which have it, begin anew."""

    def begin_anew(self: Resync, verdict: Any) -> Any:
        return BeginAnew("planted") if verdict.finding is not None else None

    with all_of("power cuts are not noticed"), patch.object(Resync, "decide", begin_anew):
        yield


@planted("a name server that was away is not told again")
def not_told_again() -> Iterator[None]:
    """Who was registered once takes that for granted, whatever the name server forgets."""
    register, known = RegistrationService._register, set[str]()

    async def once(self: RegistrationService, name_server: str) -> bool:
        registered = await register(self, name_server)
        if not registered and name_server in known:
            await trio.sleep_forever()
        known.update([name_server] * registered)
        return registered

    with patch.object(RegistrationService, "_register", once):
        yield


@planted("a master that resigned goes on")
def resigned_goes_on() -> Iterator[None]:
    """Until it hears of the new master it stores messages, and slaves that have not heard either acknowledge them."""
    fence, vote = Member.fence, Voter.vote
    resigning: list[bool] = []

    async def fence_later(self: Member, why: str) -> None:
        if not resigning:
            await fence(self, why)

    async def vote_and_go_on(self: Voter, ask: VoteRequest, change: Any = None) -> Any:
        resigning[:] = [True] * (ask.expects_end is not None and not ask.dry_run)
        try:
            answer = await vote(self, ask, change)
        finally:
            resigns = bool(resigning)
            resigning.clear()
        if resigns and answer.granted:
            self.member.effects.release()
            self.member.become("serving")
        return answer

    with patch.object(Member, "fence", fence_later), patch.object(Voter, "vote", vote_and_go_on):
        yield


@planted("the record keeps old addresses")
def old_addresses_kept() -> Iterator[None]:
    """A member that has moved stays in the record at the address that it had."""
    joined = twinlog.cluster.broker.roles.lease.joined

    def as_it_was(record: GroupRecord | None, me: GroupMember, slave: GroupMember, *more: Any) -> GroupRecord:
        known = record.member(slave.id) if record is not None else None
        if known is not None:
            slave = evolve(slave, address=known.address, ha_address=known.ha_address)
        return joined(record, me, slave, *more)

    with patch.object(twinlog.cluster.broker.roles.lease, "joined", as_it_was):
        yield

"""Faults of a record that etcd keeps, to be put into the product, in memory. The checks of etcd_checks.py catch them."""

from collections.abc import Iterator, Mapping
from unittest.mock import patch

from attrs import evolve

import twinlog.ha.election.votes
from tests.simulation.etcd import SimKeeper
from tests.simulation.holes import hole
from twinlog.cluster.broker.roles.candidate import CandidateSurvey
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.ha.election.commit import KeeperError, KeptRecord, ResultUnknownError
from twinlog.ha.election.group_record import in_force
from twinlog.ha.election.in_sync_set import Quorum, quorum_of
from twinlog.ha.election.voter import VoteReply
from twinlog.store.role_file import GroupRecord

votes = twinlog.ha.election.votes


@hole("a member of the set that lacks bytes is elected")
def lacking_elected() -> Iterator[None]:
    """Being in the in-sync set is taken for having all: only n of it do."""
    with patch.object(votes, "_outdone", lambda candidate, own, better: None):
        yield


@hole("a shrink is released before it is written")
def released_early() -> Iterator[None]:
    """Nobody waits for who is about to leave the set, while that waits for etcd."""
    quorum = LeaseRounds.quorum

    def newest_only(self: LeaseRounds) -> Quorum | None:
        group = self.member.group
        return quorum_of(group) if group is not None and group.is_in_etcd else quorum.fget(self)  # type: ignore[attr-defined, no-any-return]

    with patch.object(LeaseRounds, "quorum", property(newest_only)):
        yield


@hole("a member is in the set before it is waited for")
def grown_early() -> Iterator[None]:
    """Whoever held the whole log a moment ago comes back into the set at once."""
    with patch.object(LeaseRounds, "_prepared", lambda self, group, record: record):
        yield


@hole("a member outside of the set is elected")
def outsider_elected() -> Iterator[None]:
    """Whoever has the promises becomes master, with what it has."""
    read_kept = CandidateSurvey._read_kept

    async def read_and_come_in(self: CandidateSurvey) -> None:
        await read_kept(self)
        if self.kept is not None and self.group is not None and self.member.own not in self.group.in_sync:
            self.group = evolve(self.group, in_sync=(*self.group.in_sync, self.member.own))

    def all_votes(group: GroupRecord, answers: Mapping[str, VoteReply]) -> list[VoteReply]:
        return [each for each in answers.values() if each.granted and each.whole]

    with (
        patch.object(CandidateSurvey, "_read_kept", read_and_come_in),
        patch.object(votes, "_outside_set", lambda group, candidate: None),
        patch.object(votes, "_counting_votes", all_votes),
    ):
        yield


@hole("a stale set is read")
def stale_read() -> Iterator[None]:
    """A member of etcd that lags answers a candidate, and the swap compares with what the others have."""
    read_kept = CandidateSurvey._read_kept

    async def read_lagging(self: CandidateSurvey) -> None:
        keeper = self.outside.keeper
        assert isinstance(keeper, SimKeeper)
        keeper.lags = True
        await read_kept(self)
        keeper.lags = False

    with patch.object(CandidateSurvey, "_read_kept", read_lagging):
        yield


@hole("the set is taken from a slave's own copy")
def own_copy() -> Iterator[None]:
    """A candidate reads etcd for the revision, and goes on with the set that it knew itself."""
    read_kept = CandidateSurvey._read_kept

    async def read_and_forget(self: CandidateSurvey) -> None:
        await read_kept(self)
        own = self.member.group
        if self.kept is not None and self.kept.record is not None and own is not None and own.is_in_etcd:
            self.group = evolve(self.kept.record, in_sync=own.in_sync)
            self.kept = evolve(self.kept, record=self.group)

    with patch.object(CandidateSurvey, "_read_kept", read_and_forget):
        yield


@hole("the last copy goes on without its tail")
def last_copy_without_tail() -> Iterator[None]:
    """The only member of the set lost bytes with its power, which another member has, and elects itself."""
    with patch.object(votes, "_last_copy", lambda group, own, answers: None):
        yield


@hole("an error of etcd is taken for loss")
def error_is_loss() -> Iterator[None]:
    """A master that is not told that it is one is none."""
    read = EtcdRecord.read

    async def read_or_stop(self: EtcdRecord) -> KeptRecord:
        try:
            return await read(self)
        except KeeperError as error:
            await self.member.fence_older(f"etcd does not say that it is master: {error}")
            raise

    with patch.object(EtcdRecord, "read", read_or_stop):
        yield


@hole("an unknown swap is taken for done")
def unknown_is_done() -> Iterator[None]:
    """No answer came: it will have happened."""
    swap = EtcdRecord.swap

    async def believe(self: EtcdRecord, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        try:
            return await swap(self, before, record)
        except ResultUnknownError:
            kept = KeptRecord(record=in_force(record), revision=before.revision + 1)
            self._note(kept)
            return kept

    with patch.object(EtcdRecord, "swap", believe):
        yield


@hole("an unknown swap is taken for failed")
def unknown_is_failed() -> Iterator[None]:
    """No answer came: the version is forgotten, and another one is written in its place."""
    swap, keep_record = EtcdRecord.swap, LeaseRounds._keep_record
    failed: dict[EtcdRecord, GroupRecord] = {}

    async def give_up(self: EtcdRecord, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        try:
            return await swap(self, before, record)
        except ResultUnknownError:
            failed[self] = record
            raise

    async def forget(self: LeaseRounds) -> None:
        record, durable = failed.pop(self.outside, None), self.member.durable
        state = durable.state
        if record is not None and state is not None and state.group == record and state.before is not None:
            async with self.member.lock:
                await durable.save(evolve(state, group=in_force(state.before), before=None))
            self._recount()
        await keep_record(self)

    with patch.object(EtcdRecord, "swap", give_up), patch.object(LeaseRounds, "_keep_record", forget):
        yield


@hole("a master that was passed writes its version")
def passed_master_writes() -> Iterator[None]:
    """A version that waits is written when an answer of etcd comes, whoever is master by then."""

    async def write(self: EtcdRecord, record: GroupRecord) -> None:
        kept = self.kept
        if kept is None or self.why:
            kept = await self.read()
        if kept.record != in_force(record) and not self.overtaken():
            await self.swap(kept, record)

    with patch.object(EtcdRecord, "_write", write):
        yield

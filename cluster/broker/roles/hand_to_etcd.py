"""Hands a running group's record to etcd, and begins anew there after etcd lost it. The master does it; nothing stops meanwhile.

    checked      every voter answers, and sees the same etcd; its configuration has a place in this mode
    in etcd      the next version of the record, with all members in the set; nobody relies on it yet
    in force     once so many members have it that the version before elects nobody without it, as any change by the members

Back from etcd: the next version says so in etcd, which puts it into force.
"""

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import RoleRefusedError
from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.ha.config import AutoFailoverMode, HAConfig
from twinlog.ha.election.commit import KeeperError, KeptRecord, RecordKeeper, why_refused
from twinlog.ha.election.group_record import in_force, next_version
from twinlog.ha.election.in_sync_set import floor_of, founded, why_not_in_etcd
from twinlog.store.role_file import GroupRecord

log = structlog.get_logger(__name__)

TRY_SECONDS = 2.0
ATTEMPTS = 3  # Of a swap whose result is not known.


def why_no_place(config: HAConfig) -> str:
    """The part of a member's configuration that contradicts an in-sync set that etcd keeps; "" for nothing."""
    if config.auto_in_sync_replicas:
        return "enableAutoInSyncReplicas=true lowers inSyncReplicas by itself, as the in-sync set in etcd does: leave it out"
    if config.all_ack_in_sync_state_set:
        return (
            "allAckInSyncStateSet=true has no place beside the in-sync set in etcd: leave it out, and set inSyncReplicas to the "
            "number of members, which asks all of the set"
        )
    return ""


@define(eq=False)
class HandToEtcd:
    """`run`: where broker.conf begins a group with autoFailover=etcd."""

    member: Member
    leases: LeaseRounds
    outside: EtcdRecord
    _told: str = field(default="", init=False)

    async def run(self) -> None:
        """Hand over a new group's record as soon as it can be; until cancelled."""
        while self.member.config.auto_failover is AutoFailoverMode.etcd:
            await trio.sleep(TRY_SECONDS)
            group = self.member.group
            if group is None or group.auto_failover is not None or not self.member.is_serving:
                continue
            if len(group.voters) < group.acks_needed or not self.leases.is_settled:
                continue
            try:
                await self.begin()
            except (RoleRefusedError, RoleFileError) as error:
                if str(error) != self._told:
                    log.warning("the group's record is not handed to etcd yet", why=str(error))
                self._told = str(error)

    async def begin(self) -> None:
        """Hand it over. Raises RoleRefusedError: the group goes on as it was; RoleFileError."""
        group, keeper = self.member.group, self.outside.keeper
        if keeper is None or group is None:
            raise RoleRefusedError("this member has no etcdEndpoints: set them on every member, and start each again")
        if why := self._why_not(group):
            raise RoleRefusedError(f"the group goes on as it was: {why}")
        try:
            kept = await keeper.read()
            self._require_unchanged(group)
            if group.is_in_etcd:
                await self._begin_anew(keeper, kept)
                return
            if kept.record is not None and kept.record.epoch > max(group.epoch, self.member.id.epoch):
                raise RoleRefusedError(
                    f"etcd has epoch {kept.record.epoch} of this group, and this member is of epoch {self.member.id.epoch}: the "
                    "prefix is used by another group of this name, or left from one. Set another etcdPrefix, or delete the keys"
                )
            above = kept.record.version if kept.record is not None else 0
            record = founded(group, above)
            await _put(keeper, kept, record)
        except KeeperError as error:
            raise RoleRefusedError(f"the group goes on as it was: {error}") from error
        async with self.member.lock:
            self._require_unchanged(group)
            await self.leases.write_record(record)

    def _require_unchanged(self, group: GroupRecord) -> None:
        """Raises RoleRefusedError: this member serves no more, or with another record than when it asked etcd."""
        if self.member.group != group or not self.leases.is_settled or not self.member.is_serving:
            raise RoleRefusedError("the group's record changed meanwhile: run the command again")

    def _why_not(self, group: GroupRecord) -> str:
        if why := why_not_in_etcd(group) or self.outside.why_not:
            return why
        if group.is_in_etcd:
            held = self.member.ha.lease.held(trio.current_time())
            return "" if held else "this master does not hold its lease, and another one may have been elected"
        if self.outside.why:
            return self.outside.why
        assert self.outside.keeper is not None
        cluster = self.outside.keeper.cluster
        for id in sorted(self.leases.others):
            answer, label = self.leases.answers.get(id), group.label(id)
            if answer is None or not answer[1].accepted:
                return f"{label} does not answer: start it"
            view = answer[1].keeper
            if view is None:
                return f"{label} has no etcdEndpoints, or is of an older version: set them, and start it again"
            if view.why:
                return f"{label}: {view.why}"
            if view.cluster != cluster:
                return f"{label} asks another etcd, {view.cluster}, than this member, {cluster}: set the same etcdEndpoints"
        return ""

    async def _begin_anew(self, keeper: RecordKeeper, kept: KeptRecord) -> None:
        """Put the record there again, after etcd lost it or was restored. A master that holds its lease is the only one."""
        state = self.member.state_or_first()
        assert state.group is not None
        floor = floor_of(state.group)
        if not why_refused(kept, state.group):
            if kept.record is None or kept.record.version <= floor.version:
                raise RoleRefusedError("etcd keeps this group's record already")
            record = kept.record  # Of an attempt whose answer was lost.
        else:
            above = kept.record.version if kept.record is not None else 0
            base = next_version(floor)
            record = in_force(evolve(base, version=max(state.group.version, above) + 1, epoch=self.member.id.epoch))
            await _put(keeper, kept, record)
        async with self.member.lock:
            await self.member.durable.save(evolve(self.member.state_or_first(), group=record, before=None))
        self.leases.ask_soon()
        log.warning("the group's record was put into etcd anew", version=record.version, epoch=record.epoch)


async def _put(keeper: RecordKeeper, kept: KeptRecord, record: GroupRecord) -> None:
    """Raises RoleRefusedError, KeeperError."""
    wanted = in_force(record)
    for attempt in range(ATTEMPTS):
        try:
            after = await keeper.swap(kept, wanted)
        except KeeperError:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if after.record != wanted:
            raise RoleRefusedError(
                "another member wrote this group's record into etcd meanwhile: run the command again"
            )
        return

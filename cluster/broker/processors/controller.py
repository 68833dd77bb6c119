"""1005, 1006: the two questions of mqadmin getSyncStateSet to RocketMQ 5's controller, answered from a record that etcd keeps.

Sources: GetSyncStateSetSubCommand, ControllerRequestProcessor, ReplicasInfoManager.getSyncStateData, BrokerReplicasInfo (RocketMQ
5.3.3). A group without etcd has no in-sync set that outlives its master, and refuses both as a broker without a controller does.
"""

from typing import Any

from attrs import define

from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.dispatch import refusal
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.controller import GetMetadataInfo, GetSyncStateData
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.election.group_record import newest
from twinlog.ha.election.in_sync_set import floor_of
from twinlog.store.role_file import GroupMember, GroupRecord


@define(eq=False)
class ControllerProcessor:
    """The controller of one group, for readers: its leader is the group's master, which knows who answers."""

    settings: Settings
    roles: RoleService

    def get_metadata_info(self, header: GetMetadataInfo, request: Request) -> Reply:
        """Return whom to ask: the master by this member's record, or this member where it knows none."""
        record = self._record(request)
        leader = _master_of(record) or self.roles.member.me()
        return Reply.success(
            group=self.settings.config.broker_name,
            controllerLeaderId=leader.name,
            controllerLeaderAddress=leader.address,
            isLeader=leader.id == self.roles.member.own,
            peers=";".join(f"{each.name}-{each.address}" for each in record.members),
        )

    def get_sync_state_data(self, header: GetSyncStateData, request: Request) -> Reply:
        """Return the in-sync set, if this group is among those in the body; of others, as RocketMQ, nothing."""
        record, name = self._record(request), self.settings.config.broker_name
        try:
            names = fastjson.loads(request.body)
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the body is not JSON: {error}") from None
        if not isinstance(names, list):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "the body is not a list of broker names")
        return shared.json_reply({"replicasInfoTable": {name: self._replicas(record)} if name in names else {}})

    def _replicas(self, record: GroupRecord) -> dict[str, Any]:
        master = _master_of(record)
        voters = [each for each in record.members if each.votes]
        return {
            "inSyncReplicas": [self._replica(each) for each in voters if each.id in record.in_sync],
            "masterAddress": master.address if master is not None else None,
            "masterBrokerId": master.broker_id if master is not None else None,
            "masterEpoch": record.epoch,
            "notInSyncReplicas": [self._replica(each) for each in voters if each.id not in record.in_sync],
            "syncStateSetEpoch": record.version,
        }

    def _replica(self, each: GroupMember) -> dict[str, Any]:
        """`alive`: as far as this member can tell; a master hears its followers."""
        member = self.roles.member
        alive = each.id == member.own or (member.is_serving and each.id in self.roles.leases.followers)
        return {
            "alive": alive,
            "brokerAddress": each.address,
            "brokerId": each.broker_id,
            "brokerName": self.settings.config.broker_name,
        }

    def _record(self, request: Request) -> GroupRecord:
        """The newest version that is known to be in force. Raises RequestError: etcd does not keep the record."""
        own, kept = self.roles.member.group, self.roles.outside.kept
        record = floor_of(own) if own is not None else None
        if record is None or not record.is_in_etcd:
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, refusal(request.command.code))
        return newest(record, kept.record if kept is not None else None) or record


def _master_of(record: GroupRecord) -> GroupMember | None:
    """The member that the record has as the master; None while one is being elected."""
    if record.candidate:
        return None
    return next((each for each in record.members if each.broker_id == 0), None)

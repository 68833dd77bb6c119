"""43, 45, 200, 201, 225: change groups, show groups and offsets. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from attrs import define

from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.tables import GROUPS
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroupConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateSubscriptionGroupList,
)
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.message_store import MessageStore

GROUPS_MAX = 10_000  # Of one request.


@define(eq=False)
class SubscriptionAdminProcessor:
    """Tables of groups and offsets."""

    store: MessageStore
    groups: SubscriptionGroupManager
    groups_writer: TableWriter
    offsets: ConsumerOffsetManager
    schedule: ScheduleMessageService
    lost_tables: LostTables
    gate: Gate

    async def update_and_create_subscription_group(
        self, header: UpdateAndCreateSubscriptionGroup, request: Request
    ) -> Reply:
        """Create or change a group; answered when it is saved."""
        return await self._update([shared.json_object(request)])

    async def update_and_create_subscription_group_list(
        self, header: UpdateAndCreateSubscriptionGroupList, request: Request
    ) -> Reply:
        """Create or change many groups, for mqadmin of 5.x: all of them, or none."""
        items = shared.objects(shared.json_object(request), "groupConfigList")
        if len(items) > GROUPS_MAX:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(items)} groups; {GROUPS_MAX} at most in one request")
        return await self._update(items)

    async def _update(self, items: list[dict[str, Any]]) -> Reply:
        shared.require_changeable(self.store.config, self.gate)
        try:
            configs = [SubscriptionGroupConfig.read(item) for item in items]
        except (TypeError, ValueError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for config in configs:
            self.groups.update(config)
        await shared.save(self.groups_writer)
        return Reply(ext=None)

    def get_all_subscription_group_config(self, header: GetAllSubscriptionGroupConfig, request: Request) -> Reply:
        """Return the whole table, which slaves copy."""
        return shared.json_reply(self.lost_tables.marked(GROUPS, self.groups.to_json()))

    def get_all_consumer_offset(self, header: GetAllConsumerOffset, request: Request) -> Reply:
        """Return the whole table, which slaves copy."""
        return shared.json_reply(self.offsets.to_json())

    def get_all_delay_offset(self, header: GetAllDelayOffset, request: Request) -> Reply:
        """Return the progress of delayed messages by level, which slaves copy."""
        return shared.json_reply(self.schedule.to_json())

"""43, 45, 200, 201, 225: groups and offsets, shown and changed. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from twinlog.cluster.broker.group.lost_tables import GROUPS
from twinlog.cluster.broker.processors import body
from twinlog.cluster.broker.processors.topic_admin import save
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson
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

GROUPS_MAX = 10_000  # Of one request.


async def update_and_create_subscription_group(
    broker: BrokerParts, header: UpdateAndCreateSubscriptionGroup, request: Request
) -> Reply:
    """Answered when the group is saved."""
    return await _update(broker, [body.json_object(request)])


async def update_and_create_subscription_group_list(
    broker: BrokerParts, header: UpdateAndCreateSubscriptionGroupList, request: Request
) -> Reply:
    """The same for many groups, for mqadmin of 5.x: all of them, or none."""
    items = body.objects(body.json_object(request), "groupConfigList")
    if len(items) > GROUPS_MAX:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(items)} groups; {GROUPS_MAX} at most in one request")
    return await _update(broker, items)


async def _update(broker: BrokerParts, items: list[dict[str, Any]]) -> Reply:
    if why := broker.why_tables_stay:
        raise RequestError(ResponseCode.SYSTEM_ERROR, why)
    try:
        configs = [SubscriptionGroupConfig.read(item) for item in items]
    except (TypeError, ValueError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
    for config in configs:
        broker.groups.update(config)
    await save(broker.groups_writer)
    return Reply(ext=None)


def get_all_subscription_group_config(
    broker: BrokerParts, header: GetAllSubscriptionGroupConfig, request: Request
) -> Reply:
    """The whole table; slaves ask for it."""
    return Reply(ext=None, body=fastjson.dumps(broker.lost_tables.marked(GROUPS, broker.groups.plain())))


def get_all_consumer_offset(broker: BrokerParts, header: GetAllConsumerOffset, request: Request) -> Reply:
    """The whole table; slaves ask for it."""
    return Reply(ext=None, body=fastjson.dumps(broker.offsets.plain()))


def get_all_delay_offset(broker: BrokerParts, header: GetAllDelayOffset, request: Request) -> Reply:
    """How far delayed messages are delivered, by level; slaves ask for it."""
    return Reply(ext=None, body=fastjson.dumps(broker.schedule.plain()))


HANDLERS = (
    update_and_create_subscription_group,
    update_and_create_subscription_group_list,
    get_all_subscription_group_config,
    get_all_consumer_offset,
    get_all_delay_offset,
)

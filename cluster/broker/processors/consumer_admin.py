"""203, 204, 207, 208, 300, 305, 352: who is connected, how far groups are. Source: AdminBrokerProcessor.java (4.9.8)."""

from collections.abc import Iterable
from typing import Any

from twinlog.cluster.broker.processors.consume_stats import consume_stats, consumed_topics
from twinlog.cluster.broker.processors.topic_admin import save
from twinlog.cluster.broker.tables.clients import ClientInfo
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    DeleteSubscriptionGroup,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetSubscriptionGroupConfig,
    GetSystemTopicListFromBroker,
    QueryTopicConsumeByWho,
)
from twinlog.cluster.remoting.request import Reply, Request

TOPICS_ASKED_MAX = 1_000  # Ours: named in one 208.


def get_consumer_connection_list(broker: BrokerParts, header: GetConsumerConnectionList, request: Request) -> Reply:
    """The members of a consumer group and what they subscribe to."""
    info = broker.consumers.find(header.consumer_group)
    if info is None:
        group = header.consumer_group[: names.GROUP_LENGTH_MAX]
        raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    return _json(
        {
            "connectionSet": _connections(info.clients.values()),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: data.plain() for topic, data in info.subscriptions.items()},
        }
    )


def get_producer_connection_list(broker: BrokerParts, header: GetProducerConnectionList, request: Request) -> Reply:
    """The members of a producer group."""
    clients = broker.producers.groups.get(header.producer_group)
    if clients is None:
        group = header.producer_group[: names.GROUP_LENGTH_MAX]
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return _json({"connectionSet": _connections(clients.values())})


def _connections(clients: Iterable[ClientInfo[Connection]]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": client.connection.remote_address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for client in clients
    ]


async def delete_subscription_group(broker: BrokerParts, header: DeleteSubscriptionGroup, request: Request) -> Reply:
    """Forgets the group, and its offsets where that is asked for; its retry and dead letter topics stay."""
    if why := broker.why_tables_stay:
        raise RequestError(ResponseCode.SYSTEM_ERROR, why)
    broker.groups.delete(header.group_name)
    broker.stats.group_deleted(header.group_name)
    if header.remove_offset or header.clean_offset:
        broker.offsets.remove_group(header.group_name)
    await save(broker.groups_writer)
    return Reply(ext=None)


def get_subscription_group_config(broker: BrokerParts, header: GetSubscriptionGroupConfig, request: Request) -> Reply:
    """One group, for mqadmin of 5.x."""
    config = broker.groups.table.get(header.group)
    if config is None:
        group = header.group[: names.GROUP_LENGTH_MAX]
        raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] not exist")
    return _json(config.plain())


def get_consume_stats(broker: BrokerParts, header: GetConsumeStats, request: Request) -> Reply:
    """For each queue of the group's topics: its end, as consumers are shown it, and how far the group is."""
    listed = dict.fromkeys(topic for topic in (header.topic_list or "").split(";") if topic)
    wanted = [header.topic] if header.topic else list(listed)
    if len(wanted) > TOPICS_ASKED_MAX:
        remark = f"topicList has {len(wanted)} topics, at most {TOPICS_ASKED_MAX} are answered at once"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    names_of = wanted or broker.offsets.topics_of(header.consumer_group)
    topics = consumed_topics(broker, header.consumer_group, names_of)
    return _json(consume_stats(broker, header.consumer_group, topics))


def query_topic_consume_by_who(broker: BrokerParts, header: QueryTopicConsumeByWho, request: Request) -> Reply:
    """The groups that subscribe to a topic now, or have offsets in it."""
    groups = [*broker.consumers.groups_of_topic(header.topic), *broker.offsets.groups_of(header.topic)]
    return _json({"groupList": list(dict.fromkeys(groups))})


def get_system_topic_list(broker: BrokerParts, header: GetSystemTopicListFromBroker, request: Request) -> Reply:
    """The topics that no administrator may change."""
    return _json({"topicList": sorted(broker.topics.system)})


def _json(value: object) -> Reply:
    return Reply(ext=None, body=fastjson.dumps(value))


HANDLERS = (
    get_consumer_connection_list,
    get_producer_connection_list,
    delete_subscription_group,
    get_subscription_group_config,
    get_consume_stats,
    query_topic_consume_by_who,
    get_system_topic_list,
)

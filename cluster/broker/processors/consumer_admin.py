"""203, 204, 207, 208, 300, 305, 352: connected clients and progress of groups. Source: AdminBrokerProcessor.java (4.9.8)."""

from collections.abc import Iterable
from typing import Any

from attrs import define

from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.processors.consume_stats import GroupProgress
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.clients import ClientInfo, ConsumerManager, ProducerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting import names
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
from twinlog.store.message_store import MessageStore

TOPICS_ASKED_MAX = 1_000  # Ours: of one request 208.


@define(eq=False)
class ConsumerAdminProcessor:
    """Connected clients, progress of groups, removal of groups."""

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    groups_writer: TableWriter
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[Connection]
    producers: ProducerManager[Connection]
    stats: BrokerStatsManager
    consume_stats: GroupProgress
    gate: Gate

    def get_consumer_connection_list(self, header: GetConsumerConnectionList, request: Request) -> Reply:
        """Return the members of a consumer group and their subscriptions."""
        info = self.consumers.find(header.consumer_group)
        if info is None:
            group = header.consumer_group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        return shared.json_reply(
            {
                "connectionSet": _connections(info.clients.values()),
                "consumeFromWhere": info.consume_from_where,
                "consumeType": info.consume_type,
                "messageModel": info.message_model,
                "subscriptionTable": {topic: data.to_json() for topic, data in info.subscriptions.items()},
            }
        )

    def get_producer_connection_list(self, header: GetProducerConnectionList, request: Request) -> Reply:
        """Return the members of a producer group."""
        clients = self.producers.groups.get(header.producer_group)
        if clients is None:
            group = header.producer_group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return shared.json_reply({"connectionSet": _connections(clients.values())})

    async def delete_subscription_group(self, header: DeleteSubscriptionGroup, request: Request) -> Reply:
        """Delete a group, and its offsets if asked for; its retry and dead letter topics stay."""
        shared.require_changeable(self.store.config, self.gate)
        self.groups.delete(header.group_name)
        self.stats.group_deleted(header.group_name)
        if header.remove_offset or header.clean_offset:
            self.offsets.remove_group(header.group_name)
        await shared.save(self.groups_writer)
        return Reply(ext=None)

    def get_subscription_group_config(self, header: GetSubscriptionGroupConfig, request: Request) -> Reply:
        """Return one group, for mqadmin of 5.x."""
        config = self.groups.table.get(header.group)
        if config is None:
            group = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] not exist")
        return shared.json_reply(config.to_json())

    def get_consume_stats(self, header: GetConsumeStats, request: Request) -> Reply:
        """Return the visible end and the group's offset for each queue of its topics."""
        listed = dict.fromkeys(topic for topic in (header.topic_list or "").split(";") if topic)
        wanted = [header.topic] if header.topic else list(listed)
        if len(wanted) > TOPICS_ASKED_MAX:
            remark = f"topicList has {len(wanted)} topics; at most {TOPICS_ASKED_MAX} are allowed in one request"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        names_of = wanted or self.offsets.topics_of(header.consumer_group)
        topics = self.consume_stats.topics_of(header.consumer_group, names_of)
        return shared.json_reply(self.consume_stats.of(header.consumer_group, topics))

    def query_topic_consume_by_who(self, header: QueryTopicConsumeByWho, request: Request) -> Reply:
        """Return the groups that subscribe to a topic or have offsets in it."""
        groups = [*self.consumers.groups_of_topic(header.topic), *self.offsets.groups_of(header.topic)]
        return shared.json_reply({"groupList": list(dict.fromkeys(groups))})

    def get_system_topic_list(self, header: GetSystemTopicListFromBroker, request: Request) -> Reply:
        """Return the topics that no administrator may change."""
        return shared.json_reply({"topicList": sorted(self.topics.system)})


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

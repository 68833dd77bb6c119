"""The requests of administration to brokers and name servers, one typed function each.

Each raises RequestError for an answer other than success, RemotingConnectError without a connection, RemotingTimeoutError
without an answer, and RemotingProtocolError for an answer of another form. Source: MQClientAPIImpl (RocketMQ 4.9.8).
"""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import frozen

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, read_groups
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.headers import broker_admin, clients, messages, namesrv
from twinlog.cluster.remoting.names import AUTO_CREATE_TOPIC
from twinlog.cluster.remoting.route import MessageQueue, queue_of_key

CHANGE_MS = 6_000  # A broker that changes a topic tells the name servers before it answers.


# ---- Topics


async def topic_configs(api: ClientApi, address: str) -> dict[str, TopicConfig]:
    """Request 21: every topic of a broker."""
    answer = await api.call(address, broker_admin.GetAllTopicConfig())
    return answer.json(
        lambda body: {name: TopicConfig.read(name, entry) for name, entry in body["topicConfigTable"].items()}
    )


async def topic_config(api: ClientApi, address: str, topic: str) -> TopicConfig | None:
    """One topic of a broker; None: it has none of that name. RocketMQ 4.9 only returns all of them."""
    expected = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    answer = await api.call(address, broker_admin.GetTopicConfig(topic), expected=expected)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return (await topic_configs(api, address)).get(topic)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return answer.json(lambda body: TopicConfig.read(topic, body))


async def update_topic(api: ClientApi, address: str, config: TopicConfig) -> None:
    """Request 17: make the topic, or change it."""
    header = broker_admin.UpdateAndCreateTopic(
        topic=config.name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queues,
        write_queue_nums=config.write_queues,
        perm=config.perm,
        topic_filter_type=config.filter_type,
        order=config.order,
        topic_sys_flag=config.sys_flag,
    )
    await api.call(address, header, timeout_ms=CHANGE_MS)


async def delete_topic(api: ClientApi, address: str, topic: str) -> None:
    """Request 215: the broker forgets the topic."""
    await api.call(address, broker_admin.DeleteTopicInBroker(topic), timeout_ms=CHANGE_MS)


async def forget_topic(api: ClientApi, topic: str) -> None:
    """Request 216 to every name server: brokers do not report deleted topics to them.

    One of several may be down; brokers register there again when it is back. Raises RemotingError when all are down.
    """
    failures: list[RemotingError] = []
    for address in api.namesrv:
        try:
            await api.call(address, namesrv.DeleteTopicInNamesrv(topic))
        except RemotingError as error:
            failures.append(error)
    if len(failures) == len(api.namesrv):
        raise failures[-1]


async def groups_of_topic(api: ClientApi, address: str, topic: str) -> tuple[str, ...]:
    """Request 300: who subscribes to the topic now, or has offsets in it."""
    answer = await api.call(address, broker_admin.QueryTopicConsumeByWho(topic))
    return answer.json(lambda body: tuple(sorted(body.get("groupList") or ())))


# ---- Groups


@frozen
class ConnectedClient:
    """One connected client of a consumer group."""

    client_id: str
    address: str
    language: str
    version: int


@frozen
class Consumers:
    """Clients of a group at one broker, and their subscriptions: topic to expression."""

    clients: tuple[ConnectedClient, ...]
    message_model: str
    consume_type: str
    consume_from: str
    subscriptions: Mapping[str, str]


async def group_configs(api: ClientApi, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Request 201: every consumer group of a broker."""
    answer = await api.call(address, broker_admin.GetAllSubscriptionGroupConfig())
    return answer.json(read_groups)


async def update_group(api: ClientApi, address: str, config: SubscriptionGroupConfig) -> None:
    """Request 200: make the group, or change it."""
    body = orjson.dumps(config.to_json())
    await api.call(address, broker_admin.UpdateAndCreateSubscriptionGroup(), body, timeout_ms=CHANGE_MS)


async def delete_group(api: ClientApi, address: str, group: str, *, with_offsets: bool) -> None:
    """Request 207: the broker deletes the group and, if requested, its offsets."""
    header = broker_admin.DeleteSubscriptionGroup(group, remove_offset=with_offsets, clean_offset=with_offsets)
    await api.call(address, header, timeout_ms=CHANGE_MS)


async def consumers_of(api: ClientApi, address: str, group: str) -> Consumers | None:
    """Request 203: the group's connected clients; None: there are none."""
    expected = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
    answer = await api.call(address, broker_admin.GetConsumerConnectionList(group), expected=expected)
    if not answer.is_success:
        return None
    return answer.json(_read_consumers)


def _read_consumers(body: Mapping[str, Any]) -> Consumers:
    found = [
        ConnectedClient(
            str(each["clientId"]), str(each["clientAddr"]), str(each.get("language")), int(each.get("version", 0))
        )
        for each in body.get("connectionSet") or ()
    ]
    return Consumers(
        tuple(sorted(found, key=lambda each: each.client_id)),
        str(body.get("messageModel") or ""),
        str(body.get("consumeType") or ""),
        str(body.get("consumeFromWhere") or ""),
        {topic: str(entry.get("subString") or "*") for topic, entry in (body.get("subscriptionTable") or {}).items()},
    )


async def queues_held(api: ClientApi, address: str, group: str, client_id: str) -> tuple[MessageQueue, ...] | None:
    """Request 307, which the broker passes on: the queues that a client reads now; None: no answer."""
    header = clients.GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
    expected = (
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.CONSUME_MSG_TIMEOUT,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    )
    answer = await api.call(address, header, expected=expected)
    if not answer.is_success:
        return None
    return answer.json(lambda body: tuple(sorted(map(queue_of_key, body.get("mqTable") or ()))))


# ---- Offsets


async def all_offsets(api: ClientApi, address: str) -> dict[tuple[str, str], dict[int, int]]:
    """Request 43: (topic, group) to queue id to how far the group is; empty for a broker that has none."""
    expected = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)  # RocketMQ's for an empty table, too.
    answer = await api.call(address, broker_admin.GetAllConsumerOffset(), expected=expected)
    if not answer.is_success and "Exception" in (answer.remark or ""):
        raise RequestError(answer.code, answer.remark or "")
    return answer.json(_read_offsets) if answer.body else {}


def _read_offsets(body: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    table = {}
    for key, by_queue in (body.get("offsetTable") or {}).items():
        topic, at, group = key.partition("@")
        if at:
            table[topic, group] = {int(queue_id): int(offset) for queue_id, offset in by_queue.items()}
    return table


async def reset_online(
    api: ClientApi,
    address: str,
    topic: str,
    group: str,
    milliseconds: int,
    *,
    queue_id: int = -1,
    offset: int = -1,
) -> dict[MessageQueue, int] | None:
    """Request 222: change a group's offsets and notify its connected consumers; None: none is connected.

    -1 ms is the end, queue -1 all of them. RocketMQ 5 and twinlog understand queue and offset, and store where the group is to
    go on; 4.9 ignores both, and only notifies the consumers.
    """
    header = broker_admin.InvokeBrokerToResetOffset(topic, group, milliseconds, True, queue_id, offset)
    expected = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
    answer = await api.call(address, header, expected=expected, timeout_ms=CHANGE_MS)
    if not answer.is_success:
        return None
    return answer.json(lambda body: {queue_of_key(key): int(at) for key, at in (body.get("offsetTable") or {}).items()})


# ---- Messages, configuration


async def by_key(
    api: ClientApi, address: str, topic: str, key: str, *, count_max: int = 32, is_unique_key: bool = False
) -> bytes:
    """Request 12: records with a key, or with a client's message id; hashes may collide, so the caller compares the keys."""
    header = messages.QueryMessage(topic, key, count_max, 0, 2**63 - 1, is_unique_key)
    expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    answer = await api.call(address, header, expected=expected)
    return bytes(answer.body) if answer.is_success else b""


async def update_config(api: ClientApi, address: str, changes: Mapping[str, str]) -> None:
    """Request 25: other values for a running broker. Raises RequestError with the broker's reason."""
    body = "".join(f"{key}={value}\n" for key, value in changes.items()).encode()
    await api.call(address, broker_admin.UpdateBrokerConfig(), body, timeout_ms=CHANGE_MS)

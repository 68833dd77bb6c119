"""Requests that several sub-commands share. Each raises RemotingError. Source: DefaultMQAdminExtImpl (RocketMQ 4.9.7)."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin, namesrv
from twinlog.cluster.remoting.headers.responses import GetKVConfigResponse
from twinlog.cluster.remoting.names import RETRY_PREFIX
from twinlog.cluster.remoting.route import BrokerAddresses, MessageQueue, TopicRoute, queue_of_key

STATS_MS = 15_000


@frozen
class QueueProgress:
    """A group's progress in one queue. `last_ms`: store time of the last consumed message; 0: none."""

    broker_offset: int
    consumer_offset: int
    last_ms: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset


@frozen
class ConsumeStats:
    """A group's progress at all brokers (208)."""

    queues: Mapping[MessageQueue, QueueProgress]
    tps: float

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.queues.values())


async def route_of(api: ClientApi, topic: str) -> TopicRoute:
    """The topic's route. Raises RequestError (17) without one."""
    route = await api.topic_route(topic)
    if route is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
    return route


def one_address_each(route: TopicRoute) -> list[str]:
    """The address of each broker group's master or, without one, of a slave."""
    return [address for group in route.brokers.values() if (address := group.find(0))]


async def groups_in(api: ClientApi, cluster: str) -> tuple[BrokerAddresses, ...]:
    """The broker groups of a cluster. Raises RequestError when there is no such cluster."""
    found = tuple(group for group in await api.cluster() if group.cluster == cluster)
    if not found:
        remark = f"there is no cluster {cluster}, or -n names the name server of another one"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    return found


async def masters_in(api: ClientApi, cluster: str) -> list[str]:
    """The addresses of a cluster's masters."""
    return [group.master for group in await groups_in(api, cluster) if group.master]


async def consume_stats(api: ClientApi, group: str) -> ConsumeStats:
    """A group's progress. Raises RequestError (206) when it never consumed."""
    queues: dict[MessageQueue, QueueProgress] = {}
    tps = 0.0
    for address in one_address_each(await route_of(api, RETRY_PREFIX + group)):
        found = await consume_stats_of(api, address, group)
        queues |= found.queues
        tps += found.tps
    if not queues:
        remark = "Not found the consumer group consume stats, maybe the consumer not consume any message"
        raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    return ConsumeStats(dict(sorted(queues.items())), tps)


async def consume_stats_of(api: ClientApi, address: str, group: str, topic: str | None = None) -> ConsumeStats:
    """A group's progress at one broker; it may be empty."""
    answer = await api.call(address, broker_admin.GetConsumeStats(group, topic), timeout_ms=STATS_MS)
    return answer.json(_read_stats)


def _read_stats(body: Mapping[str, Any]) -> ConsumeStats:
    queues = {
        queue_of_key(key): QueueProgress(
            int(each["brokerOffset"]), int(each["consumerOffset"]), int(each.get("lastTimestamp", 0))
        )
        for key, each in (body.get("offsetTable") or {}).items()
    }
    return ConsumeStats(queues, float(body.get("consumeTps", 0)))


async def put_order_conf(api: ClientApi, topic: str, value: str) -> None:
    """Store at every name server how many queues of an ordered topic each broker has."""
    for address in api.namesrv:
        await api.call(address, namesrv.PutKVConfig("ORDER_TOPIC_CONFIG", topic, value))


async def order_conf(api: ClientApi, topic: str) -> dict[str, str]:
    """Broker name to number of queues, as the name servers keep it."""
    try:
        answer = await api.call_namesrv(namesrv.GetKVConfig("ORDER_TOPIC_CONFIG", topic))
    except RequestError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        raise
    value = answer.header(GetKVConfigResponse).value or ""
    return dict(part.split(":", 1) for part in value.split(";") if ":" in part)

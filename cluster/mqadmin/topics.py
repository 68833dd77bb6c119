"""topicList, topicRoute, topicStatus, updateTopic and deleteTopic."""

from functools import partial
from typing import Any

from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.mqadmin import text
from twinlog.cluster.mqadmin.requests import (
    groups_in,
    masters_in,
    one_address_each,
    order_conf,
    put_order_conf,
    route_of,
)
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.headers.namesrv import DeleteTopicInNamesrv, GetRouteInfoByTopic
from twinlog.cluster.remoting.names import DLQ_PREFIX, RETRY_PREFIX

_WIDE = "{:<20.20}  {:<64.64}  {:<64.64}"
_STATUS = "{:<32.32}  {:<4}  {:<20}  {:<20}    {}"
_ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"


async def topic_list(api: ClientApi, *, with_groups: bool) -> str:
    """The names of topics; `with_groups` (-c): with their clusters and consumer groups."""
    names = await api.topics()
    if not with_groups:
        return text.lines(names)
    clusters = {group.broker_name: group.cluster for group in await api.cluster()}
    own = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    rows = await in_parallel(partial(_with_groups, api, name, clusters) for name in own)
    head = f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}"
    return text.lines([head, *(line for lines in rows for line in lines)])


async def _with_groups(api: ClientApi, topic: str, clusters: dict[str, str]) -> list[str]:
    cluster = ""
    groups: tuple[str, ...] = ("",)
    try:
        route = await route_of(api, topic)
        cluster = next((clusters[name] for name in route.brokers if name in clusters), "")
        asked = one_address_each(route)
        groups = (await admin_requests.groups_of_topic(api, asked[0], topic) if asked else ()) or ("",)
    except RemotingError:
        pass  # As mqadmin: unknown values are left blank.
    return [_WIDE.format(cluster, topic, group) for group in groups]


async def topic_route(api: ClientApi, topic: str, *, as_list: bool) -> str:
    """The route as JSON, or as a table (-l)."""
    answer = await api.call_namesrv(GetRouteInfoByTopic(topic))
    route: dict[str, Any] = fastjson.loads(answer.body)
    for broker in route["brokerDatas"]:
        broker["brokerAddrs"] = {int(number): address for number, address in broker["brokerAddrs"].items()}
    return _route_table(route) if as_list else text.json(route) + "\n"


def _route_table(route: dict[str, Any]) -> str:
    queues = {each["brokerName"]: each for each in route["queueDatas"]}
    rows = [_ROUTE.format("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")]
    for broker in sorted(route["brokerDatas"], key=lambda each: str(each["brokerName"])):
        addresses = ", ".join(f"{number}={address}" for number, address in sorted(broker["brokerAddrs"].items()))
        share = queues[broker["brokerName"]]
        numbers = (share["readQueueNums"], share["writeQueueNums"], share["perm"])
        rows.append(_ROUTE.format(broker["cluster"], broker["brokerName"], f"{{{addresses}}}", *numbers))
    totals = [sum(each[key] for each in queues.values()) for key in ("readQueueNums", "writeQueueNums")]
    return text.lines([*rows, "-" * 158, _ROUTE.format("Total:", len(queues), "", *totals, "")])


async def topic_status(api: ClientApi, topic: str) -> str:
    """The offsets of each queue, and the store time of its last message. Raises RequestError without queues."""
    tables = await in_parallel(
        partial(api.topic_stats, address, topic) for address in one_address_each(await route_of(api, topic))
    )
    found = {queue: offsets for table in tables for queue, offsets in table.items()}
    if not found:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "Not found the topic stats info")
    rows = [_STATUS.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")]
    for queue, offsets in sorted(found.items()):
        when = text.moment(offsets.last_update_ms) if offsets.last_update_ms > 0 else ""
        rows.append(_STATUS.format(queue.broker_name, queue.queue_id, offsets.min_offset, offsets.max_offset, when))
    return text.lines(rows)


async def update_topic(api: ClientApi, config: TopicConfig, *, broker: str | None, cluster: str | None) -> str:
    """Create or change a topic on one broker, or on every master of a cluster."""
    output = ""
    addresses = [broker] if broker else await masters_in(api, cluster or "")
    for address in addresses:
        await admin_requests.update_topic(api, address, config)
        output += f"create topic to {address} success.\n"
    if config.order and broker:
        name = await _broker_name(api, broker)
        await put_order_conf(
            api, config.name, _joined(await order_conf(api, config.name) | {name: config.write_queues})
        )
        output = f"set broker orderConf. isOrder=true, orderConf=[{name}:{config.write_queues}]{output}"
    elif config.order:
        groups = await groups_in(api, cluster or "")
        conf = _joined({group.broker_name: config.write_queues for group in groups})
        await put_order_conf(api, config.name, conf)
        output += f"set cluster orderConf. isOrder=true, orderConf=[{conf}]"
    return output + text.topic_config(config) + "\n"


def _joined(conf: dict[str, Any]) -> str:
    return ";".join(f"{name}:{queues}" for name, queues in conf.items())


async def _broker_name(api: ClientApi, address: str) -> str:
    for group in await api.cluster():
        if address in group.addresses.values():
            return group.broker_name
    raise RequestError(ResponseCode.SYSTEM_ERROR, f"no broker is registered with the address {address}")


async def delete_topic(api: ClientApi, topic: str, cluster: str) -> str:
    """Delete a topic at every master of the cluster, then at every name server."""
    for address in await masters_in(api, cluster):
        await admin_requests.delete_topic(api, address, topic)
    for address in api.namesrv:
        await api.call(address, DeleteTopicInNamesrv(topic, cluster))
    return text.lines(
        [
            f"delete topic [{topic}] from cluster [{cluster}] success.",
            f"delete topic [{topic}] from NameServer success.",
        ]
    )

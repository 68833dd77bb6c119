"""17, 18, 21, 202, 215, 351: topics made, shown and removed. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

import attrs
import trio

from twinlog.cluster.broker.group.lost_tables import TOPICS
from twinlog.cluster.broker.processors import body
from twinlog.cluster.broker.processors.consume_stats import queue_key
from twinlog.cluster.broker.tables.topics import QUEUES_MAX, TopicConfig
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetTopicConfig,
    GetTopicStatsInfo,
    UpdateAndCreateTopic,
    UpdateAndCreateTopicList,
)
from twinlog.cluster.remoting.request import Reply, Request

REGISTRATION_SECONDS_MAX = 3.0  # mqadmin waits 5 s.
TOPICS_MAX = 10_000  # Of one request.


async def update_and_create_topic(broker: BrokerParts, header: UpdateAndCreateTopic, request: Request) -> Reply:
    """Answered when the topic is saved and the name servers know it, or do not answer."""
    _refuse_unless_changeable(broker, header.topic)
    for count in (header.read_queue_nums, header.write_queue_nums):
        if not 0 <= count <= QUEUES_MAX:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{count} queues; 0 to {QUEUES_MAX} are possible")
    config = TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm & 0xF,
        "MULTI_TAG" if header.topic_filter_type == "MULTI_TAG" else "SINGLE_TAG",
        sys_flag=header.topic_sys_flag or 0,
    )
    return await _update(broker, [config])


async def update_and_create_topic_list(
    broker: BrokerParts, header: UpdateAndCreateTopicList, request: Request
) -> Reply:
    """The same for many topics, for mqadmin of 5.x: all of them, or none."""
    items = body.objects(body.json_object(request), "topicConfigList")
    if len(items) > TOPICS_MAX:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(items)} topics; {TOPICS_MAX} at most in one request")
    configs = []
    for item in items:
        name = body.text(item, "topicName")
        _refuse_unless_changeable(broker, name)
        try:
            config = TopicConfig.read(name, item)
        except (TypeError, ValueError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic {name}: {error}") from None
        configs.append(attrs.evolve(config, perm=config.perm & 0xF, order=False))
    return await _update(broker, configs)


async def _update(broker: BrokerParts, configs: list[TopicConfig]) -> Reply:
    for config in configs:
        broker.topics.update(config)
    await save(broker.topics_writer)
    with trio.move_on_after(REGISTRATION_SECONDS_MAX):
        await broker.registration.register_all()
    return Reply(ext=None)


async def delete_topic_in_broker(broker: BrokerParts, header: DeleteTopicInBroker, request: Request) -> Reply:
    """Forgets the topic's configuration; success, too, when there is none. Consumers' offsets stay."""
    _refuse_unless_changeable(broker, header.topic)
    broker.topics.delete(header.topic)
    broker.stats.topic_deleted(header.topic)
    await save(broker.topics_writer)
    return Reply(ext=None)


async def save(writer: TableWriter) -> None:
    """Bring a change to the disk. Raises RequestError: it is in force then, but a restart may forget it."""
    try:
        await writer.save()
    except OSError as error:
        remark = f"{writer.file.path.name} could not be written, a restart would forget this: {error}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error


def _refuse_unless_changeable(broker: BrokerParts, topic: str) -> None:
    if why := broker.why_tables_stay:
        raise RequestError(ResponseCode.SYSTEM_ERROR, why)
    if fault := names.topic_fault(topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
    if broker.topics.is_system(topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")


def get_all_topic_config(broker: BrokerParts, header: GetAllTopicConfig, request: Request) -> Reply:
    """The whole table: slaves ask for it every 10 s."""
    return Reply.success(fastjson.dumps(broker.lost_tables.marked(TOPICS, broker.topics.plain())))


def get_topic_config(broker: BrokerParts, header: GetTopicConfig, request: Request) -> Reply:
    """One topic, for mqadmin of 5.x."""
    return Reply(ext=None, body=fastjson.dumps({"attributes": {}, **_find(broker, header.topic).plain()}))


def get_topic_stats_info(broker: BrokerParts, header: GetTopicStatsInfo, request: Request) -> Reply:
    """Where each queue begins and ends for consumers, and when its last message was stored."""
    topic = _find(broker, header.topic)
    table = {}
    for queue_id in range(topic.write_queues):
        queue = broker.store.queue(topic.name, queue_id)
        end = broker.shown_end(topic.name, queue_id)
        stored = broker.store.store_timestamp(topic.name, queue_id, end - 1) if end else 0
        table[queue_key(broker, topic.name, queue_id)] = {
            "lastUpdateTimestamp": max(stored, 0),
            "maxOffset": end,
            "minOffset": queue.min_offset,
        }
    return Reply(ext=None, body=fastjson.dumps({"offsetTable": table}))


def _find(broker: BrokerParts, name: str) -> TopicConfig:
    topic = broker.topics.select(name)
    if topic is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[: names.TOPIC_LENGTH_MAX]}] not exist")
    return topic


HANDLERS = (
    update_and_create_topic,
    update_and_create_topic_list,
    delete_topic_in_broker,
    get_all_topic_config,
    get_topic_config,
    get_topic_stats_info,
)

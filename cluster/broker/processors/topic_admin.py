"""17, 18, 21, 202, 215, 305, 351: create, show and delete topics. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

import attrs
import trio
from attrs import define

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import RegistrationService
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.tables import TOPICS, BrokerTables
from twinlog.cluster.broker.tables.topics import QUEUES_MAX, TopicConfig
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin as h
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import MessageQueue, key_of_queue
from twinlog.store.message_store import MessageStore

REGISTRATION_SECONDS_MAX = 3.0  # mqadmin waits 5 s.
TOPICS_MAX = 10_000  # Of one request.


@define(eq=False)
class TopicAdminProcessor:
    """Topics: create, show, delete."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    stats: BrokerStatsManager
    queues: Queues
    registration: RegistrationService
    lost_tables: LostTables
    gate: Gate

    async def update_and_create_topic(self, header: h.UpdateAndCreateTopic, request: Request) -> Reply:
        """Create or change a topic; answered when it is saved, and registered with the name servers that respond in time."""
        self._refuse_unless_changeable(header.topic)
        for count in (header.read_queue_nums, header.write_queue_nums):
            if not 0 <= count <= QUEUES_MAX:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"{count} queues; 0 to {QUEUES_MAX} are allowed")
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm & 0xF,
            "MULTI_TAG" if header.topic_filter_type == "MULTI_TAG" else "SINGLE_TAG",
            sys_flag=header.topic_sys_flag or 0,
        )
        return await self._update([config])

    async def update_and_create_topic_list(self, header: h.UpdateAndCreateTopicList, request: Request) -> Reply:
        """Create or change many topics, for mqadmin of 5.x: all of them, or none."""
        items = shared.objects(shared.json_object(request), "topicConfigList")
        if len(items) > TOPICS_MAX:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(items)} topics; {TOPICS_MAX} at most in one request")
        configs = []
        for item in items:
            name = shared.text(item, "topicName")
            self._refuse_unless_changeable(name)
            try:
                config = TopicConfig.read(name, item)
            except (TypeError, ValueError) as error:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic {name}: {error}") from None
            configs.append(attrs.evolve(config, perm=config.perm & 0xF, order=False))
        return await self._update(configs)

    async def _update(self, configs: list[TopicConfig]) -> Reply:
        for config in configs:
            self.tables.topics.update(config)
        await shared.save(self.tables.topics_writer)
        with trio.move_on_after(REGISTRATION_SECONDS_MAX):
            await self.registration.register_all()
        return Reply()

    async def delete_topic_in_broker(self, header: h.DeleteTopicInBroker, request: Request) -> Reply:
        """Delete a topic's configuration; a success also if there is none. Consumers' offsets stay."""
        self._refuse_unless_changeable(header.topic)
        self.tables.topics.delete(header.topic)
        self.stats.topic_deleted(header.topic)
        await shared.save(self.tables.topics_writer)
        return Reply()

    def _refuse_unless_changeable(self, topic: str) -> None:
        shared.require_changeable(self.store.config, self.gate)
        names.require_topic(topic)
        if self.tables.topics.is_system(topic):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")

    def get_all_topic_config(self, header: h.GetAllTopicConfig, request: Request) -> Reply:
        """Return the whole table, which slaves copy every 10 s."""
        return Reply.success(fastjson.dumps(self.lost_tables.marked(TOPICS, self.tables.topics.to_json())))

    def get_topic_config(self, header: h.GetTopicConfig, request: Request) -> Reply:
        """Return one topic, for mqadmin of 5.x."""
        return shared.json_reply({"attributes": {}, **shared.find_topic(self.tables.topics, header.topic).to_json()})

    def get_topic_stats_info(self, header: h.GetTopicStatsInfo, request: Request) -> Reply:
        """Return the first and the visible last offset of each queue, and the store time of its last message."""
        topic = shared.find_topic(self.tables.topics, header.topic)
        table = {}
        for queue_id in range(topic.write_queues):
            queue = self.store.queue(topic.name, queue_id)
            end = self.queues.shown_end(topic.name, queue_id)
            stored = self.store.store_timestamp(topic.name, queue_id, end - 1) if end else 0
            key = key_of_queue(MessageQueue(topic.name, self.settings.config.broker_name, queue_id))
            table[key] = {
                "lastUpdateTimestamp": max(stored, 0),
                "maxOffset": end,
                "minOffset": queue.min_offset,
            }
        return shared.json_reply({"offsetTable": table})

    def get_system_topic_list(self, header: h.GetSystemTopicListFromBroker, request: Request) -> Reply:
        """Return the topics that no administrator may change."""
        return shared.json_reply({"topicList": sorted(self.tables.topics.system)})

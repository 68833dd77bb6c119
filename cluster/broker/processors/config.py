"""Configuration requests (25, 26) and cleaning of unused files (306, 316, 329).

Sources: AdminBrokerProcessor.java, Configuration.java (RocketMQ 4.9.8).
"""

from attrs import define

from twinlog.cluster.broker.config_changes import read_changes
from twinlog.cluster.broker.reconfigure import Reconfiguration, save_changes
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.config.config_file import format_value
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin as h
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.message_store import MessageStore


@define(eq=False)
class ConfigProcessor:
    """Configuration and cleaning."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    stats: BrokerStatsManager
    status: BrokerStatus
    reconfiguration: Reconfiguration

    async def update_broker_config(self, header: h.UpdateBrokerConfig, request: Request) -> Reply:
        """Apply `key=value` lines and write them to the configuration file: all of them, or none."""
        if not request.body:
            return Reply(ext=None)
        async with self.settings.lock:
            known = self.status.options()
            changes = read_changes(request.body, self.settings.config, self.store.config, known)
            if self.settings.config_file is not None and changes.texts:
                try:
                    await save_changes(self.settings.config_file, changes)
                except OSError as error:
                    remark = f"nothing was changed: the configuration file cannot be written: {error.strerror}"
                    raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
            self.reconfiguration.apply(changes)
        return Reply(ext=None)

    def get_broker_config(self, header: h.GetBrokerConfig, request: Request) -> Reply:
        """Return all options as `key=value` lines, without secrets."""
        options = self.status.rocketmq_options() | self.status.options()
        lines = sorted(f"{key}={shown(key, format_value(value))}\n" for key, value in options.items())
        return Reply.success("".join(lines).encode(), version=fastjson.dumps(self.settings.version.to_json()).decode())

    def delete_expired_commit_log(self, header: h.DeleteExpiredCommitLog, request: Request) -> Reply:
        """mqadmin deleteExpiredCommitLog: delete old enough files now and in the next rounds, whatever the hour."""
        self.store.retention.request()
        return Reply(ext=None)

    async def clean_expired_consume_queue(self, header: h.CleanExpiredConsumeQueue, request: Request) -> Reply:
        """mqadmin cleanExpiredCQ: delete queue files whose messages are all gone from the log.

        RocketMQ removes queues without messages as a whole and then reuses their offsets, so consumers that were further skip
        messages. Here the last file of a queue stays.
        """
        await self.store.retention.clean_queues()
        return Reply(ext=None)

    async def clean_unused_topic(self, header: h.CleanUnusedTopic, request: Request) -> Reply:
        """mqadmin cleanUnusedTopic: remove what is left of deleted topics.

        Their statistics are removed at once, their queues file by file as their messages leave the log: RocketMQ deletes queues
        whose messages are still there, a start after a crash restores some of them, and their offsets are reused.
        """
        for topic in self.stats.topics():
            if topic not in self.topics.table and not self.topics.is_system(topic):
                self.stats.topic_deleted(topic)
        await self.store.retention.clean_queues()
        return Reply(ext=None)

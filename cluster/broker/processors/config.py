"""Configuration requests (25, 26) and cleaning of unused files (306, 316, 329).

Sources: AdminBrokerProcessor.java, Configuration.java (RocketMQ 4.9.8).
"""

from twinlog.cluster.broker import reconfigure, status
from twinlog.cluster.broker.config_changes import read_changes
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.config.config_file import format_value
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from twinlog.cluster.remoting.request import Reply, Request


async def update_broker_config(broker: BrokerParts, header: UpdateBrokerConfig, request: Request) -> Reply:
    """`key=value` lines: all of them hold from now on, and are in the configuration file, or none is."""
    if not request.body:
        return Reply(ext=None)
    async with broker.config_lock:
        known = status.options(broker)
        changes = read_changes(request.body, broker.config, broker.store_config, known)
        if broker.config_file is not None and changes.texts:
            try:
                await reconfigure.keep(broker.config_file, changes)
            except OSError as error:
                remark = f"nothing was changed: the configuration file cannot be written: {error.strerror}"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
        reconfigure.apply(broker, changes)
    return Reply(ext=None)


def get_broker_config(broker: BrokerParts, header: GetBrokerConfig, request: Request) -> Reply:
    """All options as `key=value` lines, but for secrets."""
    options = status.rocketmq_options(broker) | status.options(broker)
    lines = sorted(f"{key}={shown(key, format_value(value))}\n" for key, value in options.items())
    return Reply.success("".join(lines).encode(), version=fastjson.dumps(broker.config_version.to_json()).decode())


def delete_expired_commit_log(broker: BrokerParts, header: DeleteExpiredCommitLog, request: Request) -> Reply:
    """mqadmin deleteExpiredCommitLog: what is old enough goes now, and in the next rounds, whatever the hour."""
    broker.store.retention.request()
    return Reply(ext=None)


async def clean_expired_consume_queue(broker: BrokerParts, header: CleanExpiredConsumeQueue, request: Request) -> Reply:
    """mqadmin cleanExpiredCQ: queue files whose messages are all gone from the log.

    RocketMQ removes queues without any message as a whole, and gives their offsets a second time, which consumers who were
    further pass over. Here the last file of a queue stays.
    """
    await broker.store.retention.clean_queues()
    return Reply(ext=None)


async def clean_unused_topic(broker: BrokerParts, header: CleanUnusedTopic, request: Request) -> Reply:
    """mqadmin cleanUnusedTopic: what topics that were deleted left behind.

    Their statistics go at once. Their queues go file by file as their messages leave the log: RocketMQ deletes queues whose
    messages are still there, a start after a crash makes some of them anew, and their offsets are given a second time.
    """
    for topic in broker.stats.topics():
        if topic not in broker.topics.table and not broker.topics.is_system(topic):
            broker.stats.topic_deleted(topic)
    await broker.store.retention.clean_queues()
    return Reply(ext=None)


HANDLERS = (
    update_broker_config,
    get_broker_config,
    delete_expired_commit_log,
    clean_expired_consume_queue,
    clean_unused_topic,
)

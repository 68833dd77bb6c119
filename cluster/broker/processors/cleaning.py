"""306, 316, 329: files that nobody needs any more. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.headers.broker_admin import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from twinlog.cluster.remoting.request import Reply, Request


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


HANDLERS = (delete_expired_commit_log, clean_expired_consume_queue, clean_unused_topic)

"""41, 42: consumers that take messages in order own their queues. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from twinlog.cluster.broker.processors import body
from twinlog.cluster.broker.roles.gate import gated
from twinlog.cluster.broker.tables.locks import MessageQueue
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.clients import LockBatchMq, UnlockBatchMq
from twinlog.cluster.remoting.request import Reply, Request


@gated
def lock_batch_mq(broker: BrokerParts, header: LockBatchMq, request: Request) -> Reply:
    """The answer lists those queues that the client now owns."""
    group, client_id, queues = _read(request)
    granted = broker.locks.lock(group, client_id, queues)
    return Reply(ext=None, body=fastjson.dumps({"lockOKMQSet": [queue.plain() for queue in granted]}))


@gated
def unlock_batch_mq(broker: BrokerParts, header: UnlockBatchMq, request: Request) -> Reply:
    """Gives back what the client owns."""
    broker.locks.unlock(*_read(request))
    return Reply(ext=None)


def _read(request: Request) -> tuple[str, str, list[MessageQueue]]:
    value = body.json_object(request)
    group, client_id = body.text(value, "consumerGroup"), body.text(value, "clientId")
    if fault := names.group_fault(group):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
    return group, client_id, [_queue(item) for item in body.objects(value, "mqSet")]


def _queue(item: dict[str, Any]) -> MessageQueue:
    topic, queue_id = body.text(item, "topic"), item.get("queueId")
    if fault := names.topic_fault(topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
    if not isinstance(queue_id, int):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "queueId is no number")
    return MessageQueue(topic, body.text(item, "brokerName"), queue_id)


HANDLERS = (lock_batch_mq, unlock_batch_mq)

"""Requests of brokers to a consumer: 40, 220, 221, 307, 309. Source: ClientRemotingProcessor (RocketMQ 4.9.8)."""

import time
from functools import partial
from typing import Any, Protocol

import trio

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.assignment import Assignment
from twinlog.cluster.client.consume.batch import Batch
from twinlog.cluster.client.consume.locks import QueueLocks
from twinlog.cluster.client.consume.offsets import Offsets, dump_offsets, load_offsets
from twinlog.cluster.client.heartbeat import ConsumerData
from twinlog.cluster.client.messages import ReceivedMessage, as_received
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import VERSION, RemotingCommand
from twinlog.cluster.remoting.route import MessageQueue, queue_to_json
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message

DIRECTLY_SECONDS = 30.0  # The broker's own time limit is shorter.


class AskedConsumer(Protocol):
    """The consumer that brokers ask, as far as the responses show it."""

    client: Client
    ordered: bool
    workers: int
    started_ms: int
    data: ConsumerData
    offsets: Offsets
    assignment: Assignment
    locks: QueueLocks | None

    @property
    def has_handler(self) -> bool: ...

    async def consume_directly(self, message: ReceivedMessage) -> Batch: ...


def answer_request(consumer: AskedConsumer, address: str, request: RemotingCommand) -> RemotingCommand | None:
    """The response; None: none, or it is sent later."""
    try:
        return _answer(consumer, address, request)
    except ValueError as error:
        remark = f"the request cannot be understood: {error}"
        return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=remark)


def _answer(consumer: AskedConsumer, address: str, request: RemotingCommand) -> RemotingCommand | None:
    match request.code:
        case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            consumer.assignment.soon()
            return None
        case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            consumer.client.start_soon(partial(consumer.assignment.reset, load_offsets(request.body)))
            return None
        case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return _response(request, offsets_of(consumer, (request.ext or {}).get("topic", "")))
        case RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _response(request, fastjson.dumps(running_info(consumer)))
        case RequestCode.CONSUME_MESSAGE_DIRECTLY:
            consumer.client.start_soon(partial(_consume_directly, consumer, address, request))
            return None
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return RemotingCommand.response_to(request, code, remark=f" request type {request.code} not supported")


def _response(request: RemotingCommand, body: bytes) -> RemotingCommand:
    return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=body)


def offsets_of(consumer: AskedConsumer, topic: str) -> bytes:
    """The body of 221: this consumer's offsets in its queues of a topic."""
    offsets = {queue: offset for queue, offset in consumer.offsets.table.offsets.items() if queue.topic == topic}
    return dump_offsets(offsets, "messageQueueTable")


def running_info(consumer: AskedConsumer) -> dict[str, Any]:
    """The body of 307 (ConsumerRunningInfo)."""
    data: ConsumerData = consumer.data
    return {
        "mqTable": {
            fastjson.ObjectKey.of(queue_to_json(queue)): _queue_info(consumer, queue)
            for queue in sorted(consumer.assignment.readers)
        },
        "properties": {
            "PROP_CLIENT_VERSION": f"V{VERSION}",
            "PROP_CONSUMEORDERLY": str(consumer.ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": ";".join(consumer.client.namesrv),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.workers if consumer.has_handler else 0),
        },
        "statusTable": {each.topic: _NO_STATUS for each in data.subscriptions},
        "subscriptionSet": [each.to_json() for each in data.subscriptions],
    }


_NO_STATUS = {
    "consumeFailedMsgs": 0,
    "consumeFailedTPS": 0.0,
    "consumeOKTPS": 0.0,
    "consumeRT": 0.0,
    "pullRT": 0.0,
    "pullTPS": 0.0,
}


def _queue_info(consumer: AskedConsumer, queue: MessageQueue) -> dict[str, Any]:
    held = consumer.assignment.readers[queue].held
    locked_at = consumer.locks.last_renewed(queue) if consumer.locks is not None else None
    return {
        "cachedMsgCount": held.count,
        "cachedMsgMaxOffset": held.next_offset - 1 if held.count else 0,
        "cachedMsgMinOffset": held.commit_offset if held.count else 0,
        "cachedMsgSizeInMiB": held.size >> 20,
        "commitOffset": consumer.offsets.table.offsets.get(queue, -1),
        "droped": held.is_dropped,
        "lastConsumeTimestamp": _clock_ms(held.last_taken),
        "lastLockTimestamp": _clock_ms(locked_at or 0),
        "lastPullTimestamp": _clock_ms(held.last_pulled),
        "locked": consumer.locks is not None and consumer.locks.holds(queue),
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _clock_ms(moment: float) -> int:
    """Convert a time of trio's clock to ms since 1970; 0 stays 0."""
    return round((time.time() - trio.current_time() + moment) * 1000) if moment else 0


async def _consume_directly(consumer: AskedConsumer, address: str, request: RemotingCommand) -> None:
    begun = trio.current_time()
    try:
        record = decode_message(bytes(request.body))
    except StoreError as error:
        remark = f"the body is no message: {error}"
        consumer.client.remoting.respond(
            address, RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=remark)
        )
        return
    queue = MessageQueue(record.topic, (request.ext or {}).get("brokerName", ""), record.queue_id)
    result = "CR_RETURN_NULL"
    with trio.move_on_after(DIRECTLY_SECONDS):
        batch = await consumer.consume_directly(as_received(record, queue))
        result = "CR_LATER" if batch.failed else "CR_SUCCESS"
    body = {
        "autoCommit": True,
        "consumeResult": result,
        "order": consumer.ordered,
        "spentTimeMills": round((trio.current_time() - begun) * 1000),
    }
    consumer.client.remoting.respond(address, _response(request, fastjson.dumps(body)))

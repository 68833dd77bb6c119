"""Requests about offsets. Source: MQClientAPIImpl (RocketMQ 4.9.8)."""

from collections.abc import Mapping
from typing import Any

import orjson

from twinlog.cluster.client.api.answers import QueueOffsets
from twinlog.cluster.client.api.calls import Calls, queue_fields, understood
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand


class OffsetApi(Calls):
    """Where queues begin and end, and how far groups are."""

    __slots__ = ()

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset of the queue's first message that is still there."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, queue)

    async def _offset(self, address: str, code: RequestCode, queue: MessageQueue) -> int:
        answer = await self._call(address, code, queue_fields(queue))
        return understood(lambda: int((answer.ext or {})["offset"]))

    async def committed_offset(self, address: str, queue: MessageQueue, group: str) -> int | None:
        """Where the group goes on in this queue; None when it never said."""
        ext = {"consumerGroup": group, **queue_fields(queue)}
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._call(address, RequestCode.QUERY_CONSUMER_OFFSET, ext, expected=expected)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return understood(lambda: int((answer.ext or {})["offset"]))

    async def commit_offset(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        """Let the group go on at `offset` in this queue."""
        ext = {"consumerGroup": group, **queue_fields(queue), "commitOffset": str(offset)}
        await self._call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def commit_offset_oneway(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        """The same without waiting for an answer, as consumers do every five seconds."""
        ext = {"consumerGroup": group, **queue_fields(queue), "commitOffset": str(offset)}
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext)
        await self.client.oneway(address, command, timeout_ms=self.timeout_ms)

    async def offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Request 29: the offset near a store time; RocketMQ 4.9 takes the nearest, 5.x the first at or after it."""
        ext = {**queue_fields(queue), "timestamp": str(timestamp_ms)}
        answer = await self._call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        return understood(lambda: int((answer.ext or {})["offset"]))

    async def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """Request 202: the offsets of the topic's queues on one broker."""
        answer = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return understood(lambda: _read_stats(fastjson.loads(answer.body)))


def _read_stats(body: Mapping[str, Any]) -> dict[MessageQueue, QueueOffsets]:
    table = {}
    for key, value in body["offsetTable"].items():
        queue = orjson.loads(key.encode())
        offsets = QueueOffsets(int(value["minOffset"]), int(value["maxOffset"]), int(value["lastUpdateTimestamp"]))
        table[MessageQueue(queue["topic"], queue["brokerName"], int(queue["queueId"]))] = offsets
    return table

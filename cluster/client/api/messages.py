"""Requests that carry messages: send, pull, send back, end a transaction. Source: MQClientAPIImpl (RocketMQ 4.9.8)."""

from attrs import frozen

from twinlog.cluster.client.api.answers import Pulled, PullStatus, SendStatus, Sent
from twinlog.cluster.client.api.calls import Calls, understood
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.client.subscription import TAG
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RequestError

DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES = "TBW102", 4
TOOLS_GROUP = "TOOLS_CONSUMER"  # Exists on every broker from the start.
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4  # Bits of a pull's sysFlag (PullSysFlag).
_SENT_CODES = frozenset(status.value for status in SendStatus)
_PULL_CODES = frozenset(status.value for status in PullStatus)


@frozen(kw_only=True)
class SendRequest:
    """Request 310, or 320 for a batch and 325 for a reply."""

    code: RequestCode = RequestCode.SEND_MESSAGE_V2
    queue: MessageQueue
    group: str
    properties: str
    body: bytes
    born_timestamp: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    reconsume_times_max: int | None = None

    def command(self) -> RemotingCommand:
        """The frame to send. One-letter names: SendMessageRequestHeaderV2."""
        ext = {
            "a": self.group,
            "b": self.queue.topic,
            "c": DEFAULT_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUES),
            "e": str(self.queue.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "false",
            "m": "true" if self.code == RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": self.queue.broker_name,
        }
        if self.reconsume_times_max is not None:
            ext["l"] = str(self.reconsume_times_max)
        return RemotingCommand(self.code, ext=ext, body=self.body)


def read_sent(answer: RemotingCommand) -> Sent:
    """Raises RequestError when the broker has not stored the message, RemotingProtocolError for nonsense."""
    if answer.code not in _SENT_CODES:
        raise RequestError(answer.code, answer.remark or "no reason given")
    fields = answer.ext or {}
    return understood(
        lambda: Sent(
            SendStatus(answer.code),
            int(fields["queueId"]),
            int(fields["queueOffset"]),
            fields["msgId"],
            answer.remark if answer.code else None,
        )
    )


class MessageApi(Calls):
    """Messages to a broker and from it."""

    __slots__ = ()

    async def send(
        self,
        address: str,
        queue: MessageQueue,
        *,
        group: str,
        properties: str,
        body: bytes,
        born_timestamp: int,
        flag: int = 0,
    ) -> Sent:
        """Request 310: one message to one queue of the broker at `address`."""
        request = SendRequest(
            queue=queue, group=group, properties=properties, body=body, born_timestamp=born_timestamp, flag=flag
        )
        return await self.send_request(address, request)

    async def send_request(self, address: str, request: SendRequest, *, timeout_ms: int | None = None) -> Sent:
        """Any request that brings messages, and its answer."""
        command = request.command()
        return read_sent(await self.client.request(address, command, timeout_ms=timeout_ms or self.timeout_ms))

    async def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        *,
        group: str = TOOLS_GROUP,
        expression: str | None = "*",
        kind: str = TAG,
        version: int = 0,
        count_max: int = 32,
        suspend_ms: int = 0,
        commit_offset: int | None = None,
    ) -> Pulled:
        """Request 11; `suspend_ms` is how long the broker may wait for something new.

        With `expression` None the group's subscription counts, as its heartbeats told it, of that `version` at least.
        """
        sys_flag = (SUSPEND if suspend_ms else 0) | (SUBSCRIPTION if expression is not None else 0)
        ext = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count_max),
            "sysFlag": str(sys_flag | (COMMIT if commit_offset else 0)),
            "commitOffset": str(commit_offset or 0),
            "suspendTimeoutMillis": str(suspend_ms),
            "subVersion": str(version),
            "expressionType": kind,
        }
        if expression is not None:
            ext["subscription"] = expression
        timeout_ms = self.timeout_ms + suspend_ms
        # A broker looks every 5 s whether it has held a pull for long enough.
        timeout_ms += 10_000 if suspend_ms else 0
        answer = await self._call(address, RequestCode.PULL_MESSAGE, ext, expected=_PULL_CODES, timeout_ms=timeout_ms)
        fields = answer.ext or {}
        return understood(
            lambda: Pulled(
                PullStatus(answer.code),
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                int(fields.get("suggestWhichBrokerId", 0)),
                answer.body if answer.code == ResponseCode.SUCCESS else b"",
            )
        )

    async def send_back(
        self, address: str, message: ReceivedMessage, *, group: str, delay_level: int, times_max: int
    ) -> None:
        """Request 36: let the group have the message again later, or lay it down as dead."""
        ext = {
            "offset": str(message.phy_offset),
            "group": group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": message.queue.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(times_max),
            "bname": message.queue.broker_name,
        }
        await self._call(address, RequestCode.CONSUMER_SEND_MSG_BACK, ext)

    async def end_transaction(self, address: str, ext: dict[str, str], *, remark: str | None = None) -> None:
        """Request 37, oneway."""
        command = RemotingCommand(RequestCode.END_TRANSACTION, ext=ext, remark=remark)
        await self.client.oneway(address, command, timeout_ms=self.timeout_ms)

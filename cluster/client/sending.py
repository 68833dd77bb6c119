"""What is sent, what became of it, and whether to try elsewhere. Pure. Source: DefaultMQProducerImpl (RocketMQ 4.9.8)."""

from attrs import frozen

from twinlog.cluster.client.api.answers import SendStatus, Sent
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError

RETRY_ELSEWHERE = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


@frozen
class SendResult:
    """Where a message went, and how safe it is there. Of a batch: where its first message went; ids with commas."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    remark: str | None


@frozen(kw_only=True)
class Prepared:
    """A request without its queue: every try sends the same, so that consumers can tell that a message came twice."""

    topic: str
    message_id: str
    properties: str
    body: bytes
    flag: int = 0
    sys_flag: int = 0
    code: RequestCode = RequestCode.SEND_MESSAGE_V2
    reconsume_times: int = 0
    reconsume_times_max: int | None = None


def is_retried(error: RemotingError) -> bool:
    """Whether another broker may do better; a refusal of the message itself is the same everywhere."""
    return not isinstance(error, RequestError) or error.code in RETRY_ELSEWHERE


def result_of(prepared: Prepared, queue: MessageQueue, sent: Sent) -> SendResult:
    where = MessageQueue(queue.topic, queue.broker_name, sent.queue_id)
    return SendResult(sent.status, where, sent.queue_offset, prepared.message_id, sent.offset_message_id, sent.remark)

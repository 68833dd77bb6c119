"""What is checked before a message is taken, whatever request brings it.

Source: AbstractSendMessageProcessor.msgCheck (RocketMQ 4.9.8).
"""

from typing import TYPE_CHECKING

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.tables.topics import PERM_WRITE, TopicConfig
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.messages import SendMessage, SendMessageV2

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts


def answer_fields(config: BrokerConfig) -> dict[str, str]:
    """In every answer to a producer, refusals too: the Java client reads them without looking."""
    return {"MSG_REGION": config.region_id, "TRACE_ON": str(config.trace_on).lower()}


def check_broker(broker: "BrokerParts", topic: TopicConfig) -> None:
    """Raises RequestError when this broker takes no messages now."""
    config = broker.config
    if config.start_accept_send_request_timestamp and broker.now_ms() < config.start_accept_send_request_timestamp:
        remark = f"broker unable to service, until {config.start_accept_send_request_timestamp} (ms since 1970)"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    if topic.order and not config.broker_permission & PERM_WRITE:
        remark = f"the broker[{broker.address}] sending message is forbidden"
        raise RequestError(ResponseCode.NO_PERMISSION, remark)


def admit(broker: "BrokerParts", connection: Connection, header: SendMessage | SendMessageV2) -> TopicConfig:
    """The topic of a request; created when that is allowed. Raises RequestError."""
    if fault := names.topic_fault(header.topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
    if header.topic in names.FORBIDDEN_TO_SEND:
        remark = f"Sending message to topic[{header.topic}] is forbidden."
        raise RequestError(ResponseCode.NO_PERMISSION, remark)
    topic = broker.topics.create_in_send(
        header.topic,
        header.default_topic,
        header.default_topic_queue_nums,
        header.unit_mode,
        connection.remote_address,
    )
    if topic is None:
        remark = f"topic[{header.topic}] not exist, apply first please! See `twinlog topic` or mqadmin updateTopic."
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
    if header.queue_id >= max(topic.read_queues, topic.write_queues):
        remark = (
            f"request queueId[{header.queue_id}] is illegal, topic {topic.name} has {topic.write_queues} write and "
            f"{topic.read_queues} read queues on this broker, producer: {connection.remote_address}"
        )
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    return topic

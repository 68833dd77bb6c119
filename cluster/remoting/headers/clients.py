"""Requests of clients about themselves, and requests of brokers to clients."""

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I64, RequestHeader, request_header, wire


@request_header(RequestCode.HEART_BEAT)
class HeartBeat(RequestHeader):
    """34, body HeartbeatData."""


@request_header(RequestCode.UNREGISTER_CLIENT)
class UnregisterClient(RequestHeader):
    """35, with one of both groups."""

    client_id: str = field(metadata=wire("clientID"))
    producer_group: str | None = None
    consumer_group: str | None = None


@request_header(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
class GetConsumerListByGroup(RequestHeader):
    """38"""

    consumer_group: str


@request_header(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChanged(RequestHeader):
    """40, broker to consumer, oneway."""

    consumer_group: str


@request_header(RequestCode.LOCK_BATCH_MQ)
class LockBatchMq(RequestHeader):
    """41, body {clientId, consumerGroup, mqSet}."""


@request_header(RequestCode.UNLOCK_BATCH_MQ)
class UnlockBatchMq(RequestHeader):
    """42, body as 41."""


@request_header(RequestCode.CHECK_CLIENT_CONFIG)
class CheckClientConfig(RequestHeader):
    """46, body {clientId, group, subscriptionData}."""


@request_header(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetConsumerClientOffset(RequestHeader):
    """220, broker to consumer, oneway."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool


@request_header(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatusFromClient(RequestHeader):
    """221, broker to consumer."""

    topic: str
    group: str
    client_addr: str | None = None


@request_header(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunningInfo(RequestHeader):
    """307, forwarded to the consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@request_header(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeMessageDirectly(RequestHeader):
    """309, forwarded to the consumer with the record."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None

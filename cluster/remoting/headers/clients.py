"""Requests of clients about themselves, and requests of brokers to clients."""

from typing import ClassVar

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I64, RequestHeader, header, wire


@header
class HeartBeat(RequestHeader):
    """34, body HeartbeatData."""

    code: ClassVar[RequestCode] = RequestCode.HEART_BEAT


@header
class UnregisterClient(RequestHeader):
    """35, with one of both groups."""

    code: ClassVar[RequestCode] = RequestCode.UNREGISTER_CLIENT
    client_id: str = field(metadata=wire("clientID"))
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class GetConsumerListByGroup(RequestHeader):
    """38"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str


@header
class NotifyConsumerIdsChanged(RequestHeader):
    """40, broker to consumer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


@header
class LockBatchMq(RequestHeader):
    """41, body {clientId, consumerGroup, mqSet}."""

    code: ClassVar[RequestCode] = RequestCode.LOCK_BATCH_MQ


@header
class UnlockBatchMq(RequestHeader):
    """42, body as 41."""

    code: ClassVar[RequestCode] = RequestCode.UNLOCK_BATCH_MQ


@header
class CheckClientConfig(RequestHeader):
    """46, body {clientId, group, subscriptionData}."""

    code: ClassVar[RequestCode] = RequestCode.CHECK_CLIENT_CONFIG


@header
class ResetConsumerClientOffset(RequestHeader):
    """220, broker to consumer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: I64
    is_force: bool


@header
class GetConsumerStatusFromClient(RequestHeader):
    """221, broker to consumer."""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    client_addr: str | None = None


@header
class GetConsumerRunningInfo(RequestHeader):
    """307, forwarded to the consumer."""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header
class ConsumeMessageDirectly(RequestHeader):
    """309, forwarded to the consumer with the record."""

    code: ClassVar[RequestCode] = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None

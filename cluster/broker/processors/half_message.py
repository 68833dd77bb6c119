"""323: a transaction that was asked about too often is asked about again.

Source: AdminBrokerProcessor.resumeCheckHalfMessage (RocketMQ 4.9.8). There any message becomes a half message that way.
"""

from twinlog.cluster.broker.roles.gate import gated
from twinlog.cluster.broker.transactions.records import resumed
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import ResumeCheckHalfMessage
from twinlog.cluster.remoting.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.errors import MessageFormatError
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.record.message import Message, decode_message

_ID_LENGTHS = (32, 56)  # Of IPv4 and IPv6 hosts; the last 16 digits are the place in the log.


@gated
def resume_check_half_message(broker: BrokerParts, header: ResumeCheckHalfMessage, request: Request) -> Reply:
    """Puts a copy of the half message behind the others, with no check counted yet."""
    half = _find(broker, header.msg_id or "")
    result = broker.store.put([resumed(half)])[0]
    if result.status is not PutStatus.PUT_OK:
        raise _failed(f"the store does not take it, {result.status.value}")
    return Reply(ext=None)


def _find(broker: BrokerParts, message_id: str) -> Message:
    if len(message_id) not in _ID_LENGTHS or not message_id.isascii() or not message_id.isalnum():
        raise _failed("msgId is no offset message id: 32 hexadecimal digits, or 56 with IPv6")
    try:
        offset = int(message_id[-16:], 16)
        record = broker.store.message_at(offset) if offset < 1 << 63 else None
        half = decode_message(record, check_crc=False) if record is not None else None
    except (ValueError, MessageFormatError):
        half = None
    if half is None:
        raise _failed("there is no message with this id here")
    if half.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
        raise _failed(f"it belongs to topic {half.topic}, and is no half message")
    return half


def _failed(why: str) -> RequestError:
    remark = f"Put message back to {HALF_TOPIC} failed: {why}."
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)


HANDLERS = (resume_check_half_message,)

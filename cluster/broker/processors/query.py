"""12, 33: single messages by key or by place. Source: QueryMessageProcessor.java (RocketMQ 4.9.8)."""

from cluster.broker.parts import BrokerParts
from cluster.remoting.codes import ResponseCode
from cluster.remoting.errors import RequestError
from cluster.remoting.headers import QueryMessage, ViewMessageById
from cluster.remoting.server import Reply, Request


def query_message(broker: BrokerParts, header: QueryMessage, request: Request) -> Reply:
    """There is no index of keys yet, so nothing is ever found."""
    return Reply(
        code=ResponseCode.QUERY_NOT_FOUND,
        remark="can not find message, maybe time range not correct",
        ext={"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
    )


def view_message_by_id(broker: BrokerParts, header: ViewMessageById, request: Request) -> Reply:
    """The record that starts at a commit log offset, as the message id names it."""
    record = broker.store.message_at(header.offset)
    if record is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
    return Reply(ext=None, body=[record])


HANDLERS = (query_message, view_message_by_id)

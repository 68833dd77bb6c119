"""12, 33: messages by key or by place. Source: QueryMessageProcessor.java (RocketMQ 4.9.8)."""

from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import encode_header_fields
from twinlog.cluster.remoting.headers.messages import QueryMessage, ViewMessageById
from twinlog.cluster.remoting.headers.responses import QueryMessageResponse
from twinlog.cluster.remoting.request import Reply, Request


async def query_message(broker: BrokerParts, header: QueryMessage, request: Request) -> Reply:
    """The newest messages of a topic with a key, as they are stored; the client sorts out keys that only share a hash."""
    count_max = broker.store_config.default_query_max_num if header.unique_key_query else header.max_num
    found = await broker.store.query(header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp)
    ext = encode_header_fields(QueryMessageResponse(found.index_timestamp, found.index_phy_offset))
    if not found.records:
        remark = "can not find message, maybe time range not correct"
        return Reply(ResponseCode.QUERY_NOT_FOUND, remark, ext)
    return Reply(ext=ext, body=found.records)


def view_message_by_id(broker: BrokerParts, header: ViewMessageById, request: Request) -> Reply:
    """The record that starts at a commit log offset, as the message id names it."""
    record = broker.store.message_at(header.offset)
    if record is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
    return Reply(ext=None, body=[record])


HANDLERS = (query_message, view_message_by_id)

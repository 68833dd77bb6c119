"""Helpers of processors: JSON bodies of requests and responses, and changes of tables."""

from typing import Any

from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.config import StoreConfig
from twinlog.store.errors import MessageFormatError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import Message, decode_message

NOT_ON_A_SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."


def json_reply(value: object) -> Reply:
    """Return a success with this body and no header fields."""
    return Reply(body=fastjson.dumps(value))


def json_object(request: Request) -> dict[str, Any]:
    """Return the body as an object. Raises RequestError."""
    try:
        value = fastjson.loads(request.body)
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the body is not a JSON object")
    return value


def objects(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the list of objects under `key`, or an empty one. Raises RequestError."""
    items = value.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key} is not a list of objects")
    return items


def text(value: dict[str, Any], key: str) -> str:
    """Return the text under `key`. Raises RequestError."""
    item = value.get(key)
    if not isinstance(item, str) or not item:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key} is missing")
    return item


def find_topic(topics: TopicConfigManager, name: str) -> TopicConfig:
    """Return a topic. Raises RequestError."""
    topic = topics.select(name)
    if topic is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[: names.TOPIC_LENGTH_MAX]}] not exist")
    return topic


def read_message(store: MessageStore, phy_offset: int, *, check_crc: bool = False) -> Message | None:
    """Return the message at an offset of the log; None when no sound record starts there."""
    record = store.message_at(phy_offset)
    try:
        return decode_message(record, check_crc=check_crc) if record is not None else None
    except MessageFormatError:
        return None


def require_changeable(store_config: StoreConfig, gate: Gate) -> None:
    """Raises RequestError unless this member is the master and stays it: tables are changed only there."""
    if store_config.is_slave:
        raise RequestError(ResponseCode.SYSTEM_ERROR, NOT_ON_A_SLAVE)
    if gate.state != "open":
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"Not now, try again: {gate.why}.")


async def save(writer: TableWriter) -> None:
    """Write a changed table to disk. Raises RequestError if that fails: the change is in force, but a restart may lose it."""
    try:
        await writer.save()
    except OSError as error:
        remark = f"{writer.file.path.name} could not be written, so a restart loses this change: {error}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error

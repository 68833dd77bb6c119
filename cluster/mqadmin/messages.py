"""queryMsgById and queryMsgByKey."""

from collections.abc import Iterator
from functools import partial

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.mqadmin import text
from twinlog.cluster.mqadmin.requests import consume_stats, one_address_each, route_of
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.names import RETRY_PREFIX
from twinlog.store.record.message import Message, decode_message, host_text

KEY_COUNT_MAX = 64


async def query_by_key(api: ClientApi, topic: str, key: str) -> str:
    """The messages with a key. Raises RequestError when there is none."""
    addresses = one_address_each(await route_of(api, topic))
    found = await in_parallel(
        partial(admin_requests.by_key, api, address, topic, key, count_max=KEY_COUNT_MAX) for address in addresses
    )
    messages = [each for records in found for each in _split(records) if key in each.properties.get("KEYS", "").split()]
    if not messages:
        raise RequestError(ResponseCode.NO_MESSAGE, "query message by key finished, but no message.")
    rows = [f"{_id(each):<50} {each.queue_id:>4} {each.queue_offset:>40}" for each in messages]
    return text.lines([f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}", *rows])


def _split(records: bytes) -> Iterator[Message]:
    at = 0
    while at < len(records):
        message = decode_message(records, at)
        at += message.size
        yield message


def _id(message: Message) -> str:
    return message.properties.get("UNIQ_KEY", message.message_id)


async def query_by_id(api: ClientApi, message_id: str) -> str:
    """A message by its broker's id, and the groups that have consumed it. Raises ValueError for an invalid id."""
    address, offset = place_of(message_id)
    record = await api.view_message(address, offset)
    if record is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    message = decode_message(record)
    rows = [f"{name:<20} {value}" for name, value in _fields(message)]
    tracks = await _tracks(api, message)
    return text.lines([*rows, "", "", *(tracks or ["WARN: No Consumer"])])


def place_of(message_id: str) -> tuple[str, int]:
    """The broker's address and the offset in its log, from a message id. Raises ValueError."""
    raw = bytes.fromhex(message_id) if len(message_id) in (32, 56) else b""
    if not raw:
        raise ValueError("a broker's message id has 32 or 56 hexadecimal digits (offset_message_id of twinlog send)")
    host, _, port = host_text(raw[:-8]).rpartition(":")
    return f"{host}:{port}", int.from_bytes(raw[-8:], "big")


def _fields(message: Message) -> list[tuple[str, object]]:
    properties = ", ".join(f"{key}={value}" for key, value in message.properties.items())
    return [
        ("OffsetID:", message.message_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.properties.get('TAGS', 'null')}]"),
        ("Keys:", f"[{message.properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.phy_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", text.moment(message.born_timestamp)),
        ("Store Timestamp:", text.moment(message.store_timestamp)),
        ("Born Host:", host_text(message.born_host)),
        ("Store Host:", host_text(message.store_host)),
        ("System Flag:", message.sys_flag),
        ("Properties:", f"{{{properties}}}"),
        ("Message Body:", bytes(message.body).decode(errors="backslashreplace")),
    ]


async def _tracks(api: ClientApi, message: Message) -> list[str]:
    """A line for each group of the topic: whether it has consumed the message."""
    addresses = one_address_each(await route_of(api, message.topic))
    groups = await admin_requests.groups_of_topic(api, addresses[0], message.topic) if addresses else ()
    return [await _track(api, message, group) for group in groups]


async def _track(api: ClientApi, message: Message, group: str) -> str:
    kind, why = "UNKNOWN", "null"
    try:
        asked = one_address_each(await route_of(api, RETRY_PREFIX + group))
        consumers = await admin_requests.consumers_of(api, asked[0], group) if asked else None
        if consumers is None:
            kind, why = "NOT_ONLINE", f"CODE:206 DESC:the consumer group[{group}] not online"
        elif consumers.consume_type == "CONSUME_ACTIVELY":
            kind = "PULL"
        elif consumers.consume_type == "CONSUME_PASSIVELY":
            wanted = consumers.subscriptions.get(message.topic, "*")
            kind = await _consumed(api, message, group, wanted)
    except RemotingError as error:
        why = str(error)
    return f"MessageTrack [consumerGroup={group}, trackType={kind}, exceptionDesc={why}]"


async def _consumed(api: ClientApi, message: Message, group: str, wanted: str) -> str:
    masters = {each.broker_name: each.master for each in await api.cluster()}
    stats = await consume_stats(api, group)
    for queue, progress in stats.queues.items():
        is_its = (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        if is_its and masters.get(queue.broker_name) == host_text(message.store_host):
            if progress.consumer_offset <= message.queue_offset:
                return "NOT_CONSUME_YET"
            tags = {tag.strip() for tag in wanted.split("||")}
            return "CONSUMED" if "*" in tags or message.properties.get("TAGS") in tags else "CONSUMED_BUT_FILTERED"
    return "NOT_CONSUME_YET"

"""A topic of orders, and snapshots of consumer offsets, as input of exports."""

import time
from pathlib import Path
from typing import Any

from twinlog.store.log.commit_log import PutMessage
from twinlog.store.message_store import MessageStore

SCHEMA = "id BIGINT, customer STRUCT<name: STRING>, tags ARRAY<STRING>"
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": {"name": f"Zoë {number}"}, "tags": ["a", "b"]}


def put(store: MessageStore, *bodies: bytes, keys: str = "k", topic: str = "orders", sys_flag: int = 0, queue: int = 0):
    """Store messages that were born half a second ago."""
    properties = f"KEYS\1{keys}\2TAGS\1t\2UNIQ_KEY\1u".encode()
    born = time.time_ns() // 1_000_000 - 500
    store.put([PutMessage(topic, queue, body, properties, 0, sys_flag, born, HOST, HOST) for body in bodies])


def snapshot(directory: Path, at_ms: int, offsets: dict[str, dict[int, int]]) -> None:
    """Write a snapshot as RocketMQ does: numeric keys have no quotes."""
    directory.mkdir(exist_ok=True)
    tables = ",".join(
        f'"{key}":{{{",".join(f"{queue}:{offset}" for queue, offset in queues.items())}}}'
        for key, queues in offsets.items()
    )
    (directory / f"consumerOffset-{at_ms}.json").write_text(f'{{"offsetTable":{{{tables}}}}}')


def now_ms() -> int:
    return time.time_ns() // 1_000_000

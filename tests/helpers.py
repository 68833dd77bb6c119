"""Small stand-ins and shorthands that several suites share."""

import os
from pathlib import Path

from attrs import define, field

from store.commit_log import PutMessage
from store.config import BrokerRole, StoreConfig
from store.message_store import MessageStore
from store.offset_waiters import PutStatus

# Replication: stores to replicate, and somebody who waits for it.


def open_store(root: Path, *, file_size: int = 16_384, role: BrokerRole = BrokerRole.SYNC_MASTER) -> MessageStore:
    """A store with small files, loaded but not run: it appends and reads, and does nothing by itself."""
    sizes = {"mapped_file_size_commit_log": file_size, "max_hash_slot_num": 100, "max_index_num": 400}
    store = MessageStore(StoreConfig(root=root, broker_role=role, **sizes))
    store.load()
    return store


def put(store: MessageStore, *bodies: bytes, topic: str = "TopicTest") -> int:
    """Append messages to queue 0 of a topic; returns the end of the log."""
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    messages = [
        PutMessage(topic, 0, body, b"KEYS\x01k", 0, 0, 1_700_000_000_000, host, host, 0, 0, 0) for body in bodies
    ]
    assert all(result.status is PutStatus.PUT_OK for result in store.put(messages))
    return store.max_offset


def log_bytes(store: MessageStore) -> bytes:
    """All bytes of a store's commit log."""
    log, pieces = store.commit_log, []
    offset = log.min_offset
    while chunk := log.chunk(offset, 1 << 30):
        pieces.append(os.pread(chunk.fd, chunk.size, chunk.position))
        offset += chunk.size
    return b"".join(pieces)


@define(eq=False)
class RecordingSink:
    """An AckSink that notes what it is told."""

    answered: list[bytes] = field(factory=list)
    refused: list[tuple[bytes, PutStatus]] = field(factory=list)
    reasons: list[str] = field(factory=list)
    calls: int = 0

    def answer(self, frames: list[bytes]) -> None:
        self.calls += 1
        self.answered += frames

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self.calls += 1
        self.refused += [(frame, status) for frame in frames]
        self.reasons.append(reason)

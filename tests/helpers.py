"""Small stand-ins and shorthands that several suites share."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import trio
from attrs import define, evolve, field

from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory, PeerLog
from twinlog.ha.wire.protocol import BATCH_HEADER, ReportReader
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.integrity.range_digests import LogRangeError, RangeDigester
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import scan_records
from twinlog.store.role_file import GroupMember

# Replication: stores to replicate, and somebody who waits for it.


def open_store(root: Path, *, file_size: int = 16_384, role: BrokerRole = BrokerRole.SYNC_MASTER) -> MessageStore:
    """A store with small files, loaded but not run: it appends and reads, and does nothing by itself. It also takes messages when
    a write took a second, as on a machine that stood still.
    """
    sizes = {"mapped_file_size_commit_log": file_size, "max_hash_slot_num": 100, "max_index_num": 400}
    store = MessageStore(StoreConfig(root=root, broker_role=role, os_page_cache_busy_timeout_ms=0, **sizes))
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


def replicate(store: MessageStore, data: bytes) -> None:
    """Append whole records to a slave's log, and dispatch them."""
    scan = scan_records(data, store.max_offset, store.commit_log.file_size, check_crc=True)
    assert scan.consumed == len(data)
    if not data:
        return
    store.append_replicated(memoryview(data), scan.entries)
    store.dispatch_pending()


def log_bytes(store: MessageStore) -> bytes:
    """All bytes of a store's commit log."""
    log, pieces = store.commit_log, []
    offset = log.min_offset
    while chunk := log.chunk(offset, 1 << 30):
        pieces.append(os.pread(chunk.fd, chunk.size, chunk.position))
        offset += chunk.size
    return b"".join(pieces)


@define(eq=False)
class StorePeer:
    """A member's remoting port, without the port: what twinlog.ha.peer.Peer asks, answered out of its store.

    `is_twinlog=False`: as a RocketMQ broker answers, without digests, file size and role. `digests_max`: of one answer.
    `told`: its history; None: it tells none.
    """

    store: MessageStore
    is_twinlog: bool = True
    is_master: bool | None = True
    boot_ms: int = 1
    is_up: bool = True
    digests_max: int = 1000
    told: PeerHistory | None = None
    asked_by: list[GroupMember | None] = field(factory=list)
    questions: list[str] = field(factory=list)
    before: Callable[[str], None] = lambda _question: None  # Something may happen between two questions.

    async def _asked(self, question: str) -> None:
        await trio.lowlevel.checkpoint()
        if not self.is_up:
            raise HAPeerError("connection refused")
        self.questions.append(question)
        self.before(question)

    async def log(self) -> PeerLog:
        await self._asked("log")
        return PeerLog(
            is_twinlog=self.is_twinlog,
            min_offset=self.store.min_offset,
            max_offset=self.store.max_offset,
            boot_ms=self.boot_ms,
            file_size=self.store.commit_log.file_size if self.is_twinlog else None,
            is_master=self.is_master if self.is_twinlog else None,
        )

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        await self._asked("history")
        self.asked_by.append(me)
        return evolve(self.told, max_offset=self.store.max_offset) if self.told is not None else None

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        await self._asked("digests")
        if not self.is_twinlog:
            return None
        digester = RangeDigester(self.store.commit_log, self.store.digest)
        try:
            return await digester.answer(start, end, blocks_per_digest=blocks_per_digest, digests_max=self.digests_max)
        except LogRangeError as error:
            raise HAPeerError(str(error)) from error

    async def record(self, phy_offset: int) -> bytes | None:
        await self._asked("record")
        found = self.store.message_at(phy_offset)
        return bytes(found) if found is not None else None


async def rocketmq_master(store: MessageStore, stream: trio.StapledStream) -> None:
    """Serve one slave as RocketMQ 4.9 does: from any byte, the last file for 0, heartbeats where it has nothing, and an end
    at the second report of more than it has.
    """
    reader, reports = ReportReader(), 0
    at: int | None = None

    async def read() -> None:
        nonlocal at, reports
        while data := await stream.receive_some():
            for offset in reader.feed(bytes(data)):
                reports += 1
                if at is None:
                    end = store.max_offset
                    at = offset or end - end % store.commit_log.file_size
                elif offset > store.max_offset:
                    await stream.aclose()
                    return

    async def write() -> None:
        nonlocal at
        written = -5.0
        while True:
            chunk = store.commit_log.chunk(at, 32_768) if at is not None else None
            if chunk is not None or (at is not None and trio.current_time() >= written + 5):
                body = os.pread(chunk.fd, chunk.size, chunk.position) if chunk is not None else b""
                await stream.send_all(BATCH_HEADER.pack(at, len(body)) + body)
                at, written = at + len(body), trio.current_time()
            else:
                await trio.sleep(0.1)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await read()
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


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


def docs_extension(name: str) -> ModuleType:
    """A module of docs/_ext, which is no package."""
    spec = importlib.util.spec_from_file_location(
        f"docs_{name}", Path(__file__).parents[1] / "docs" / "_ext" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs looks there.
    spec.loader.exec_module(module)
    return module

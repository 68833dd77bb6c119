"""One side of a log comparison: a running broker, RocketMQ's or ours, asked over its remoting port."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio
from attrs import define, evolve, field, frozen

from twinlog.cluster.client.api import ClientApi, StoredRecord
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.member_status import NO_STATUS, MemberStatus
from twinlog.ha.compare.digests import Digests
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.offline.diff import DiffRecord
from twinlog.store.offline.dump import DumpedMessage, described
from twinlog.store.offline.finding import doc
from twinlog.store.record.message import decode_message

T = TypeVar("T")
_TIMEOUT_MS = 20_000  # For digests: a member reads up to 16 MiB for an answer, and others may come first.
_ATTEMPTS = 3  # At an answer that does not come.
_BUSY_SECONDS = 1.0


@frozen(kw_only=True)
class LiveSide:
    """State of one side when the comparison began. Offsets in bytes."""

    name: str
    address: str
    software: str
    role: str | None = doc("master or slave; null: not reported")
    min_offset: int
    end_offset: int
    confirmed_offset: int | None = doc(
        "offset up to which as many members hold the log as producers were promised; null: not reported"
    )
    damaged_bytes: int | None = doc(
        "changed on its disk since they were written, as far as it knows; null: not reported"
    )


class LogMovedError(Exception):
    """A log no longer holds what it reported: it was truncated, or its first file was deleted."""


@define(eq=False)
class LogSide:
    """Requests to one broker. Raises RemotingError, and LogMovedError."""

    api: ClientApi
    address: str
    name: str
    now: LiveSide = field(init=False)  # As of the last status.
    is_twinlog: bool = field(default=False, init=False)
    file_size: int = field(default=1 << 30, init=False)  # Of a RocketMQ broker.

    async def look(self) -> LiveSide:
        """Ask for the log's current start and end."""
        status = await self.api.member_status(self.address)
        runtime = await self.api.runtime_info(self.address)
        self.is_twinlog = status is not None
        if status is None:
            options = {entry.key: entry.value for entry in parse_properties(await self.api.broker_config(self.address))}
            size = options.get("mappedFileSizeCommitLog", "")
            self.file_size = int(size) if size.isdecimal() and int(size) else self.file_size
        self.now = side_of(self.name, self.address, status, runtime)
        return self.now

    async def digests(self, question: Digests) -> RangeDigests:
        """Digests of a range; twinlog members only."""
        api = evolve(self.api, timeout_ms=_TIMEOUT_MS)
        start, end, size = question.start, question.end, question.blocks_per_digest
        found = await self._ask(lambda: api.block_digests(self.address, start, end, blocks_per_digest=size))
        if found is None:
            raise LogMovedError(f"{self.name} does not answer digests any more")
        return found

    async def record_at(self, offset: int) -> StoredRecord:
        """The record that a byte belongs to; twinlog members only."""
        found = await self._ask(partial(self.api.record_at, self.address, offset))
        if found is None:
            raise LogMovedError(f"{self.name} does not answer records any more")
        return found

    async def record_from(self, offset: int) -> StoredRecord:
        """The record that should begin at an offset; any broker."""
        record = await self._ask(partial(self.api.view_message, self.address, offset))
        if record is None:
            return StoredRecord(offset, offset, "no sound record begins here", b"")
        return StoredRecord(offset, offset + len(record), _problem(record), record)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                return await question()
            except RequestError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    raise LogMovedError(f"{self.name}: {error.remark}") from error
                if error.code != ResponseCode.SYSTEM_BUSY or attempt + 1 == _ATTEMPTS:
                    raise
                await anyio.sleep(_BUSY_SECONDS)
            except RemotingTimeoutError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")


def side_of(name: str, address: str, status: MemberStatus | None, runtime: Mapping[str, str]) -> LiveSide:
    """Build the side from its status, which only twinlog has, and its runtime info."""
    version = runtime.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".")
    end = int(runtime.get("commitLogMaxOffset", 0))
    begin = int(runtime.get("commitLogMinOffset", 0))
    reported = status or NO_STATUS
    damaged = int(runtime.get("damagedBytes", 0)) + int(runtime.get("inDoubtBytes", 0))
    return LiveSide(
        name=(reported.name or name) if name == address else name,
        address=address,
        software="twinlog" if status is not None else f"RocketMQ {version}".rstrip(),
        role=("slave" if reported.role == "SLAVE" else "master") if reported.role else None,
        min_offset=reported.min_offset if reported.min_offset is not None else begin if begin >= 0 else end,
        end_offset=reported.max_offset if reported.max_offset is not None else end,
        confirmed_offset=reported.confirmed_offset,
        damaged_bytes=damaged if status is not None else None,
    )


def diff_record(record: StoredRecord) -> DiffRecord:
    """The record with its message, where its fields can be decoded."""
    return DiffRecord(
        start_offset=record.start, end_offset=record.end, problem=record.problem, message=_message(record.data)
    )


def _message(data: bytes) -> DumpedMessage | None:
    try:
        return described(decode_message(data, check_crc=False), with_body=True)
    except (StoreError, ValueError):
        return None


def _problem(record: bytes) -> str | None:
    try:
        decode_message(record)
    except StoreError as error:
        return str(error)
    return None

"""Requests about a broker itself: RocketMQ's, and those of twinlog members only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from twinlog.cluster.client.api.answers import StoredRecord
from twinlog.cluster.client.api.calls import Calls, understood
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import DIGEST_SIZE
from twinlog.store.record.message import decode_message

if TYPE_CHECKING:
    from twinlog.store.integrity.range_digests import RangeDigests  # With what it reads from, 0.1 s to import: few ask.


class MemberApi(Calls):
    """What members tell of themselves, their logs and their roles."""

    __slots__ = ()

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Request 28: what a broker says about itself, RocketMQ's or ours."""
        answer = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO, None)
        return understood(lambda: dict(fastjson.loads(answer.body)["table"]))

    async def broker_config(self, address: str) -> str:
        """Request 26: all options of a broker, RocketMQ's or ours, as `key=value` lines."""
        answer = await self._call(address, RequestCode.GET_BROKER_CONFIG, None)
        return understood(lambda: bytes(answer.body).decode())

    async def member_status(self, address: str) -> dict[str, Any] | None:
        """Request 20001: a twinlog member's status; None when the broker does not know the request."""
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._call(address, RequestCode.TWINLOG_MEMBER_STATUS, None, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return understood(lambda: dict(orjson.loads(answer.body)))

    async def block_digests(
        self, address: str, start: int, end: int, *, blocks_per_digest: int = 1
    ) -> "RangeDigests | None":
        """Request 20002: digests of a range of the log, or of its first part; None when the broker does not know the request."""
        ext = {"start": str(start), "end": str(end), "blocksPerDigest": str(blocks_per_digest)}
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._call(address, RequestCode.TWINLOG_BLOCK_DIGESTS, ext, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        from twinlog.store.integrity.range_digests import RangeDigests

        return understood(lambda: _read_digests(answer, RangeDigests(start, end, blocks_per_digest, ())))

    async def record_at(self, address: str, offset: int) -> StoredRecord | None:
        """Request 20003: what a byte of the log belongs to; None when the broker does not know the request."""
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        ext = {"offset": str(offset)}
        answer = await self._call(address, RequestCode.TWINLOG_RECORD_AT, ext, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        fields = answer.ext or {}
        return understood(
            lambda: StoredRecord(int(fields["start"]), int(fields["end"]), fields.get("problem"), bytes(answer.body))
        )

    async def role_change(
        self, address: str, body: Mapping[str, Any], *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """Request 20006, of twinlog only: a role change, or what belongs to it; `op` says which."""
        answer = await self._call(
            address, RequestCode.TWINLOG_ROLE_CHANGE, None, orjson.dumps(body), timeout_ms=timeout_ms
        )
        return understood(lambda: dict(orjson.loads(answer.body)))

    async def epochs(self, address: str) -> bytes:
        """Request 1007: the epochs of a member's log, as JSON."""
        answer = await self._call(address, RequestCode.GET_BROKER_EPOCH, None)
        return bytes(answer.body)

    async def view_message(self, address: str, offset: int) -> bytes | None:
        """Request 33: the record that begins at an offset of the log, as it is stored; None when none does.

        RocketMQ takes whatever lies there for the size of a record: code 1 follows, or no body, or rubbish.
        """
        expected = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}, expected=expected)
        record = bytes(answer.body)
        return record if answer.code == ResponseCode.SUCCESS and _is_record(record, offset) else None


def _read_digests(answer: RemotingCommand, asked: "RangeDigests") -> "RangeDigests":
    fields, body = answer.ext or {}, bytes(answer.body)
    end, size = int(fields["end"]), int(fields["blocksPerDigest"])
    from twinlog.store.integrity.range_digests import RangeDigests, group_count

    count = group_count(asked.start, end, size)
    fits = int(fields["start"]) == asked.start < end <= asked.end and size == asked.blocks_per_digest
    if not fits or len(body) != count * DIGEST_SIZE:
        raise ValueError(f"{len(body)} bytes of digests of {fields} for a question about {asked}")
    digests = tuple(body[at : at + DIGEST_SIZE] for at in range(0, len(body), DIGEST_SIZE))
    return RangeDigests(asked.start, end, size, digests)


def _is_record(data: bytes, offset: int) -> bool:
    """Whether these bytes are one record that says that it lies there; its body may be damaged."""
    try:
        message = decode_message(data, check_crc=False)
    except StoreError:
        return False
    return message.phy_offset == offset and int.from_bytes(data[:4]) == len(data)

"""twinlog's requests for comparing logs: digests of a range (20002), and the record around a byte (20003).

20002:
    request   start, end, blocksPerDigest     each digest covers so many 64 KiB blocks and starts at a multiple of that size
    response  start, end, blocksPerDigest     `end` may be less than asked for: the next request goes on from there
    body      digests of 16 bytes, in order

Code 22: the log does not hold all of these bytes, or was truncated meanwhile. Code 2: too many requests wait for digests.
store/integrity/range_digests.py describes the digests and their speed.

20003:
    request   offset
    response  start, end, problem     bytes of the log; `problem`: why they are not a sound record, otherwise left out
    body      these bytes, at most BODY_MAX
"""

import trio
from attrs import define

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import encode_header_fields
from twinlog.cluster.remoting.headers.members import BlockDigests, RecordAtOffset
from twinlog.cluster.remoting.headers.responses import BlockDigestsResponse, RecordAtOffsetResponse
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.integrity.range_digests import LogRangeError, RangeDigester
from twinlog.store.log.range import LOOK_MAX, LogRange, RecordAt, bounds_around, record_at
from twinlog.store.message_store import MessageStore

DIGESTS_MAX = 4096  # In a response: 64 KiB.
WAITING_MAX = 64
BODY_MAX = LOOK_MAX  # Bytes; RocketMQ's messages have no more than 4 MiB unless maxMessageSize is set.


@define(eq=False)
class DigestProcessor:
    """Digests and records of the log."""

    store: MessageStore

    def _digester(self) -> RangeDigester:
        """Return the digester. Raises RequestError while too many requests wait for it."""
        digester = self.store.range_digester
        if digester.waiting >= WAITING_MAX:
            remark = f"{digester.waiting} requests wait for digests: try again later"
            raise RequestError(ResponseCode.SYSTEM_BUSY, remark)
        return digester

    async def block_digests(self, header: BlockDigests, request: Request) -> Reply:
        """Return the digests of at least a block; waits while other requests are served."""
        if not 0 <= header.start < header.end or header.blocks_per_digest < 1:
            range_text = f"bytes {header.start} to {header.end} in groups of {header.blocks_per_digest} blocks"
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"there are no digests of {range_text}")
        digester = self._digester()
        try:
            found = await digester.answer(
                header.start, header.end, blocks_per_digest=header.blocks_per_digest, digests_max=DIGESTS_MAX
            )
        except LogRangeError as error:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
        except OSError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the log cannot be read: {error}") from error
        ext = encode_header_fields(BlockDigestsResponse(found.start, found.end, found.blocks_per_digest))
        return Reply(ext=ext, body=b"".join(found.digests))

    async def record_at_offset(self, header: RecordAtOffset, request: Request) -> Reply:
        """Return the record around an offset, damaged or not; code 22 for an offset outside of the log."""
        log, offset = self.store.commit_log, header.offset
        low, high = bounds_around(offset, log.file_size)
        async with self._digester().reading(1 << 20):  # Usually; around damage more is read.
            if not log.min_offset <= offset < log.max_offset:
                held = f"which holds {log.min_offset} to {log.max_offset}"
                raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"byte {offset} is not in this log, {held}")
            try:
                with LogRange.open(log, low, high) as bytes_:
                    found, data = await trio.to_thread.run_sync(_read_record, bytes_, offset, log.file_size)
            except OSError as error:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"the log cannot be read: {error}") from error
        ext = encode_header_fields(RecordAtOffsetResponse(found.start, found.end, found.problem))
        return Reply(ext=ext, body=data)


def _read_record(log: LogRange, offset: int, file_size: int) -> tuple[RecordAt, bytes]:
    found = record_at(log, offset, file_size)
    return found, log.read(found.start, min(found.end - found.start, BODY_MAX))

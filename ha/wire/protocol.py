"""Codec of the HA stream. Bytes in, values out; no socket, no clock, no store.

Master to slave, repeated:  phy_offset i64 | body_size i32 | body[body_size]   (body_size 0: heartbeat)
Slave to master, repeated:  max_offset i64   (the first one: where to begin; later ones: everything below is here)
twinlog slave to twinlog master, before all others: a ticket, i64 below -1, which the master gave it on the remoting port
Big endian; offsets and sizes count bytes. A body is a piece of the log: it may begin and end inside a record, but never
crosses the end of a log file. Source: HAConnection, HAService.HAClient (RocketMQ 4.9.8).
"""

from collections.abc import Iterator
from struct import Struct

from attrs import define, field

from twinlog.ha.errors import HAProtocolError

BATCH_HEADER, ACK = Struct(">qi"), Struct(">q")
assert (BATCH_HEADER.size, ACK.size) == (12, 8)

NO_REQUEST_YET = -1  # As a report: a heartbeat before the request, which masters ignore.
TICKET_MAX = -2  # Tickets are below -1: a RocketMQ master would take one for a request, and is never sent one.
BUFFER_SIZE = 4 * 1024 * 1024
# HAClient.READ_MAX_BUFFER_SIZE: a larger frame hangs a RocketMQ slave.
BODY_SIZE_MAX = 4 * 1024 * 1024 - BATCH_HEADER.size


@define
class ReportReader:
    """The master's end: 8-byte reports, however they are cut."""

    _rest: bytes = field(default=b"", init=False)

    def feed(self, data: bytes) -> list[int]:
        """Take bytes of the socket; return the reports that are complete now, oldest first."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % ACK.size
        self._rest = data[whole:]
        return [offset for (offset,) in ACK.iter_unpack(data[:whole])]


@define(kw_only=True, eq=False)
class BatchReader:
    """The slave's end: takes frames apart where they lie, so that the log's bytes come to lie side by side.

    Records can then be read across frames, and one write takes all of them to the log. The buffer:

        0                      _staged                  _received        len(_buffer)
        | bytes of the log, headers taken out | a cut header | free for the next read |

    `next_offset` is where the next frame has to begin, None while an empty log takes any start of a file. `buffer` may have
    been used before; a record that is too large for it gets one of its own.
    """

    next_offset: int | None
    file_size: int
    body_size_max: int = BODY_SIZE_MAX
    _buffer: bytearray = field(factory=lambda: bytearray(BUFFER_SIZE))
    frames: int = field(default=0, init=False)  # Whole headers seen, heartbeats included.
    _staged: int = field(default=0, init=False)
    _received: int = field(default=0, init=False)
    _body_left: int = field(default=0, init=False)  # Of the frame whose header was the last one seen.
    _header: bytes = field(default=b"", init=False)  # The beginning of one, while frames pass by this buffer.

    def free_space(self) -> memoryview:
        """Buffer for the next bytes from the socket, never empty. Call received() before the next call."""
        if self._received == len(self._buffer):
            self.reserve(len(self._buffer) * 2)
        return memoryview(self._buffer)[self._received :]

    def reserve(self, size: int) -> None:
        """Make room for a record of `size` bytes that has begun, bounded by the size of a log file."""
        size = min(size, self.file_size) + BATCH_HEADER.size
        if len(self._buffer) < size:
            grown = bytearray(size)
            grown[: self._received] = self._buffer[: self._received]
            self._buffer = grown

    def received(self, size: int) -> None:
        """Take `size` bytes that were put into free_space().

        Raises HAProtocolError for a frame that has no place here. What is staged was in order and can still be used;
        the rest of the stream cannot.
        """
        at = self._staged
        end = self._received + size
        buffer = memoryview(self._buffer)
        while True:
            if self._body_left:
                taken = min(self._body_left, end - at)
                if at != self._staged:
                    buffer[self._staged : self._staged + taken] = buffer[at : at + taken]
                at += taken
                self._staged += taken
                self._body_left -= taken
                assert self.next_offset is not None
                self.next_offset += taken
            if end - at < BATCH_HEADER.size:
                break
            phy_offset, body_size = BATCH_HEADER.unpack_from(buffer, at)
            self._received = self._staged  # Should the frame be refused, nothing behind the staged bytes is kept.
            self._begin(phy_offset, body_size)
            at += BATCH_HEADER.size
        rest = end - at
        if rest and at != self._staged:
            buffer[self._staged : self._staged + rest] = buffer[at:end]
        self._received = self._staged + rest

    def _begin(self, phy_offset: int, body_size: int) -> None:
        if not 0 <= body_size <= self.body_size_max:
            raise HAProtocolError(
                f"a frame at offset {phy_offset} with a body of {body_size} bytes, while {self.body_size_max} are the most "
                "that slaves take: is haTransferBatchSize of the master larger?"
            )
        room = self.file_size - phy_offset % self.file_size
        if self.next_offset is None:
            if phy_offset < 0 or room != self.file_size:
                raise HAProtocolError(
                    f"an empty log cannot begin at {phy_offset}, inside a file: "
                    f"mappedFileSizeCommitLog is {self.file_size} here, is it the same on the master?"
                )
            self.next_offset = phy_offset
        if phy_offset != self.next_offset:
            raise HAProtocolError(f"a frame at offset {phy_offset} where {self.next_offset} is next")
        if body_size > room:
            raise HAProtocolError(
                f"a frame of {body_size} bytes at offset {phy_offset} crosses the end of a file: "
                f"mappedFileSizeCommitLog is {self.file_size} here, is it the same on the master?"
            )
        self._body_left = body_size
        self.frames += 1

    def begin_passing(self) -> bytes:
        """Give back what is staged: from now on bytes pass by this buffer, see pieces(), until end_passing()."""
        staged = bytes(self.staged)
        self._header = bytes(memoryview(self._buffer)[self._staged : self._received])
        self._staged = self._received = 0
        return staged

    def pieces(self, data: memoryview) -> Iterator[memoryview]:
        """The log's bytes in `data`, the next bytes of the stream, in order; `next_offset` advances.

        Raises HAProtocolError for a frame that has no place here, behind all that came in order before.
        """
        at = 0
        while at < len(data):
            if self._body_left:
                piece = data[at : at + self._body_left]
                yield piece
                at += len(piece)
                self._body_left -= len(piece)
                assert self.next_offset is not None
                self.next_offset += len(piece)
                continue
            part = data[at : at + BATCH_HEADER.size - len(self._header)]
            self._header += part
            at += len(part)
            if len(self._header) == BATCH_HEADER.size:
                header, self._header = self._header, b""
                self._begin(*BATCH_HEADER.unpack(header))

    def end_passing(self, staged: bytes) -> None:
        """Stage the last bytes that passed by; the buffer is used again."""
        rest, self._header = staged + self._header, b""
        self.reserve(len(rest))
        self._buffer[: len(rest)] = rest
        self._staged, self._received = len(staged), len(rest)

    @property
    def staged(self) -> memoryview:
        """Bytes of the log that arrived and were not consumed yet. Release it before free_space() or consume()."""
        return memoryview(self._buffer)[: self._staged]

    @property
    def staged_size(self) -> int:
        """Number of staged bytes."""
        return self._staged

    @property
    def staged_offset(self) -> int:
        """Offset in the log of the first of them."""
        return (self.next_offset or 0) - self._staged

    def consume(self, size: int) -> None:
        """Drop the oldest `size` staged bytes."""
        assert size <= self._staged
        kept = self._received - size
        if kept:
            buffer = memoryview(self._buffer)
            buffer[:kept] = buffer[size : self._received]
        self._staged -= size
        self._received = kept

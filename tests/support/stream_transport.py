"""A transport of the HA stream over any trio stream, with copies: for tests in virtual time, without sockets."""

import os
from collections.abc import Callable

import trio
from attrs import define, field

from twinlog.ha.errors import HAConnectionLostError, HALogError
from twinlog.ha.policy.deferred_plan import Receive, Stream
from twinlog.ha.wire.transport import RECEIVE_SIZE
from twinlog.store.log.commit_log import CommitLog, FileChunk


@define(eq=False)
class StreamTransport:
    """See Transport."""

    stream: trio.abc.Stream
    local_address: str | None = field(default=None, init=False)
    is_tls: bool = field(default=False, init=False)
    sent_offset: int = field(default=0, init=False)
    _unsent_bytes: int = field(default=0, init=False)

    async def send_batch(self, header: bytes, chunk: FileChunk | None, log: CommitLog) -> None:
        """See Transport. `sent_offset` is raised first: the ack may be read before send_all returns."""
        body = b""
        if chunk is not None:
            body = os.pread(chunk.fd, chunk.size, chunk.position)
            if len(body) < chunk.size:
                raise HALogError(f"the bytes at offset {self.sent_offset + len(body)} are no longer in the log")
            self.sent_offset += chunk.size
        await self.send(header + body)

    def send_batch_now(self, header: bytes, body: memoryview) -> bool:
        """See Transport. Streams cannot."""
        return False

    async def flush(self) -> None:
        """See Transport."""

    def unsent_bytes(self) -> int:
        """See Transport. A stream tells when it has taken all, no earlier."""
        return self._unsent_bytes

    async def send(self, data: bytes) -> None:
        """See Transport."""
        self._unsent_bytes = len(data)
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise HAConnectionLostError(f"sending failed: {error}") from error
        self._unsent_bytes = 0

    def send_now(self, data: bytes) -> bool:
        """See Transport. Streams cannot."""
        return False

    async def receive(self) -> bytes:
        """See Transport."""
        return await self._receive(RECEIVE_SIZE)

    async def receive_into(self, buffer: memoryview) -> int:
        """See Transport."""
        data = await self._receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    async def receive_each(self, buffer: Callable[[], memoryview], take: Callable[[int], bool]) -> None:
        """See Transport."""
        while take(await self.receive_into(buffer())):
            pass

    async def receive_bulk(self, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
        """See Transport."""
        left, until = step.size_max, trio.current_time() + step.seconds_max
        while left > 0 and trio.current_time() < until:
            data: bytes | None = None
            with trio.move_on_after(step.gap_seconds):
                data = await self._receive(min(len(buffer), left))
            if data is None:
                return "gap"
            if not data:
                return "ended"
            take(memoryview(data))
            left -= len(data)
        return "more"

    async def _receive(self, size_max: int) -> bytes:
        try:
            return bytes(await self.stream.receive_some(size_max))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise HAConnectionLostError(f"receiving failed: {error}") from error

    async def aclose(self) -> None:
        """See Transport."""
        await trio.aclose_forcefully(self.stream)

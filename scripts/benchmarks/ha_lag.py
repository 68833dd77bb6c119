"""How long a message takes to a slave that keeps up: a proxy between the two sees frames go by, and acks come back.

A record says when it was stored (ms, of the same clock); its message has arrived when the slave acknowledges its end.
"""

import time
from collections import deque
from functools import partial
from statistics import quantiles
from typing import Any

import trio
from attrs import define, field

from scripts.benchmarks.store_restarts import send_frame
from tests.support.process_group.ports import HOST
from twinlog.cluster.remoting.client import start_tls
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import client_context, server_context
from twinlog.ha.wire.protocol import BATCH_HEADER, BatchReader, ReportReader
from twinlog.store.record.scan import scan_records

TICK_SECONDS = 0.005
ONE_WAY = 2


@define
class LagProxy:
    """Between a slave, which connects to `port`, and the HA port of its master. Counts while `counting`.

    with_tls: it decrypts and encrypts what passes by, both ways.
    """

    master_port: int
    file_size: int
    with_tls: bool = False
    counting: bool = False
    lags_ms: list[float] = field(factory=list)
    _under_way: deque[tuple[int, int]] = field(factory=deque)  # Ends of records, and when they were stored.

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve one slave at a time until cancelled."""
        while True:
            slave: trio.abc.Stream = await listener.accept()
            master: trio.abc.Stream = await trio.open_tcp_stream(HOST, self.master_port)
            if self.with_tls:
                slave = trio.SSLStream(slave, server_context(TlsConfig()), server_side=True, https_compatible=True)
                master = await start_tls(master, f"{HOST}:{self.master_port}", client_context(TlsConfig()))
            async with slave, master, trio.open_nursery() as nursery:
                nursery.start_soon(partial(self._acks, slave, master, nursery.cancel_scope))
                await self._frames(master, slave)
                nursery.cancel_scope.cancel()

    async def _frames(self, master: trio.abc.Stream, slave: trio.abc.Stream) -> None:
        head = b""
        while len(head) < BATCH_HEADER.size and (data := await master.receive_some()):
            head += data
            await slave.send_all(data)
        if len(head) < BATCH_HEADER.size:
            return
        reader = BatchReader(next_offset=BATCH_HEADER.unpack_from(head)[0], file_size=self.file_size)
        self._look(reader, head)
        async for data in master:
            await slave.send_all(data)
            self._look(reader, data)

    def _look(self, reader: BatchReader, data: bytes | bytearray) -> None:
        """Note when the records were stored that end in what went by."""
        reader.reserve(reader.staged_size + len(data) + BATCH_HEADER.size)
        reader.free_space()[: len(data)] = data
        reader.received(len(data))
        scan = scan_records(reader.staged, reader.staged_offset, self.file_size, check_crc=False)
        self._under_way += ((entry.phy_offset + entry.size, entry.store_timestamp) for entry in scan.entries)
        reader.consume(scan.consumed)

    async def _acks(self, slave: trio.abc.Stream, master: trio.abc.Stream, scope: trio.CancelScope) -> None:
        reports = ReportReader()
        async for data in slave:
            now_ms = time.time_ns() / 1e6
            await master.send_all(data)
            for offset in reports.feed(bytes(data)):
                while self._under_way and self._under_way[0][0] <= offset:
                    _, stored_ms = self._under_way.popleft()
                    if self.counting:
                        self.lags_ms.append(max(0.0, now_ms - stored_ms))
        scope.cancel()

    def row(self) -> dict[str, Any]:
        """What was counted."""
        if len(self.lags_ms) < 2:
            raise RuntimeError("the slave acknowledged nothing")
        cuts = quantiles(self.lags_ms, n=100)
        return {"messages": len(self.lags_ms), "p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(self.lags_ms)}


async def send_evenly(port: int, per_second: int, seconds: float) -> None:
    """Send messages one way, so many a second, in small groups."""
    count = max(1, round(per_second * TICK_SECONDS))
    frames = b"".join(send_frame(number, ONE_WAY) for number in range(count))
    stream = await trio.open_tcp_stream(HOST, port)
    async with stream:
        begin = trio.current_time()
        for tick in range(round(seconds / TICK_SECONDS)):
            await trio.sleep_until(begin + tick * TICK_SECONDS)
            await stream.send_all(frames)

"""A batch that is sent by the producer's own task: the stream stays whole whatever the socket takes."""

import socket

import trio
import trio.testing
from attrs import define

from tests.helpers import log_bytes, open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.wire.protocol import ACK, BatchReader
from twinlog.ha.wire.transport import SocketTransport

FILE_SIZE = 1 << 20


@define(eq=False)
class CountingTransport(SocketTransport):
    """Counts what became of the frames that were to be sent at once."""

    whole: int = 0
    left: int = 0

    def send_batch_now(self, header: bytes, body: memoryview) -> bool:
        assert not self._rest, "a frame is begun behind a half one"
        is_whole = super().send_batch_now(header, body)
        self.whole += is_whole
        self.left += not is_whole
        return is_whole


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.socket()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        theirs.connect(listener.getsockname())
        theirs.setblocking(False)
        return listener.accept()[0], theirs


async def test_a_slave_that_reads_slowly_gets_every_byte_once(tmp_path, nursery):
    """The socket takes a part of a frame, then nothing: what follows must wait for the rest of it."""
    store = open_store(tmp_path, file_size=FILE_SIZE)
    ours, theirs = _tcp_pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    transport = CountingTransport(ours)
    connection = HAConnection(transport, "127.0.0.1:1", "127.0.0.1", store, GroupTransferService(), HAConfig())
    theirs.send(ACK.pack(0))
    nursery.start_soon(connection.run)
    await trio.testing.wait_all_tasks_blocked()
    reader, received = BatchReader(next_offset=None, file_size=FILE_SIZE), bytearray()
    for number in range(200):
        put(store, bytes([number]) * (number * 37 % 3000))
        put(store, b"second in the same turn")
        if number % 7 == 0:
            received += await _read_some(theirs, reader)
    with trio.fail_after(10):
        while len(received) < store.max_offset:
            received += await _read_some(theirs, reader)
    assert bytes(received) == log_bytes(store)
    assert transport.whole
    assert transport.left, "the socket was never full: the test shows nothing"
    nursery.cancel_scope.cancel()
    theirs.close()


async def _read_some(sock: socket.socket, reader: BatchReader) -> bytes:
    """What is there now, without the headers."""
    await trio.sleep(0.001)
    try:
        reader.received(sock.recv_into(reader.free_space()))
    except BlockingIOError:
        return b""
    body = bytes(reader.staged)
    reader.consume(len(body))
    return body


async def test_what_producers_send_themselves_is_bounded_too(tmp_path, nursery, mock_clock):
    """haFlowControlEnable: a burst of messages at one moment goes out as the tokens allow, and the rest as time goes by."""
    store = open_store(tmp_path, file_size=FILE_SIZE)
    ours, theirs = _tcp_pair()
    transport = CountingTransport(ours)
    config = HAConfig(flow_control_enable=True, max_transfer_byte_in_second=100_000)
    connection = HAConnection(transport, "127.0.0.1:1", "127.0.0.1", store, GroupTransferService(), config)
    theirs.send(ACK.pack(0))
    nursery.start_soon(connection.run)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(100):
        put(store, b"x" * 900)
    await trio.testing.wait_all_tasks_blocked()
    assert transport.whole > 0
    assert 0 < transport.sent_offset <= 4_000, "two hundredths of a second, twice"
    for tenth in range(1, 6):
        mock_clock.jump(0.1)
        for _ in range(20):  # Woken late, it has a tenth to send at once, of which the bucket holds four hundredths.
            await trio.testing.wait_all_tasks_blocked()
        assert transport.sent_offset <= 100_000 * tenth / 10 + 4_000
    nursery.cancel_scope.cancel()
    theirs.close()

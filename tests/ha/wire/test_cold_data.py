"""A slave far behind is sent what only the disk has: a thread waits for that, not the event loop."""

import os
import socket
import tempfile
import threading

import pytest
import trio

from tests.ha.file_log import SIZE, FileLog
from twinlog.ha.errors import HALogError
from twinlog.ha.wire import transport
from twinlog.ha.wire.transport import SocketTransport, is_cold, warm
from twinlog.store.log.commit_log import FileChunk


@pytest.fixture
def content():
    return os.urandom(SIZE)


@pytest.fixture
def fd(content, tmp_path):
    (tmp_path / "log").write_bytes(content)
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def ends():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            yield SocketTransport(ours), theirs


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := peer.recv(size - len(data))):
        data += piece
    return data


async def test_cold_bytes_are_read_by_a_thread_before_they_are_sent(monkeypatch, fd, content, ends):
    """The chunk is asked for anew then: its file may have been closed meanwhile."""
    sender, peer = ends
    threads, real = [], os.pread
    monkeypatch.setattr(transport, "is_cold", lambda *_: True)
    monkeypatch.setattr(os, "pread", lambda *args: (threads.append(threading.current_thread()), real(*args))[1])
    log, found = FileLog(fd), []

    async def read() -> None:
        found.append(await trio.to_thread.run_sync(receive, peer, SIZE + 12))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await sender.send_batch(b"h" * 12, FileChunk(fd, 0, SIZE), log)
    assert found == [b"h" * 12 + content]
    assert threads
    assert threading.main_thread() not in threads
    assert log.asked[0] == (0, SIZE)


async def test_nothing_is_sent_of_a_file_that_went_while_it_was_read(monkeypatch, fd, ends):
    sender, peer = ends
    monkeypatch.setattr(transport, "is_cold", lambda *_: True)
    with pytest.raises(HALogError, match="no longer in the log"):
        await sender.send_batch(b"h" * 12, FileChunk(fd, 0, SIZE), FileLog(fd, is_gone=True))
    await sender.aclose()
    assert receive(peer, 1) == b""


async def test_little_is_sent_without_a_look(monkeypatch, fd, content, ends):
    sender, peer = ends
    monkeypatch.setattr(transport, "is_cold", lambda *_: pytest.fail("looked"))
    await sender.send_batch(b"h" * 12, FileChunk(fd, 0, 1000), FileLog(fd))
    assert receive(peer, 1012) == b"h" * 12 + content[:1000]


async def test_what_the_kernel_dropped_is_cold_until_it_is_read():
    with tempfile.TemporaryFile(dir="/var/tmp") as file:  # On a disk, where there is one.
        file.write(os.urandom(4 * SIZE))
        file.flush()
        os.fsync(file.fileno())
        assert not is_cold(file.fileno(), 0, 4 * SIZE)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not is_cold(file.fileno(), 0, 4 * SIZE):
            pytest.skip("this file system keeps its files in memory, or does not tell")
        await warm(file.fileno(), SIZE, SIZE)
        assert not is_cold(file.fileno(), SIZE, SIZE)


@pytest.mark.parametrize("error", [OSError(95, "Operation not supported"), AttributeError("RWF_NOWAIT")])
def test_where_nobody_knows_nothing_is_cold(monkeypatch, fd, error):
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "preadv", refuse)
    assert not is_cold(fd, 0, SIZE)


async def test_a_bad_disk_is_left_to_sendfile(monkeypatch, fd):
    def refuse(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", refuse)
    await warm(fd, 0, SIZE)

"""TLS on the HA stream: told by its first byte, whole however the socket takes and gives it, and refused with a reason."""

import os
import socket
import ssl
import struct

import pytest
import trio
import trio.lowlevel
from attrs import evolve

from tests.cluster.remoting.certificates import Authority
from tests.ha.file_log import SIZE, FileLog
from tests.ha.tls_contexts import contexts
from twinlog.cluster.remoting.tls.config import ClientAuth, TlsConfig
from twinlog.cluster.remoting.tls.contexts import client_context
from twinlog.ha.errors import HAConnectionLostError, HALogError, HARefusedError, HATlsError
from twinlog.ha.master.tickets import NOBODY, Tickets
from twinlog.ha.policy.deferred_plan import Receive
from twinlog.ha.wire.protocol import ACK, NO_REQUEST_YET, TICKET_MAX
from twinlog.ha.wire.tls import FIRST_BYTE, PIECE_SIZE, HATls, TlsTransport, begin_as_master, begin_as_slave
from twinlog.ha.wire.transport import SocketTransport
from twinlog.store.log.commit_log import FileChunk


def sockets(buffer_size: int = 0) -> tuple[SocketTransport, SocketTransport]:
    """Both ends of a connection; `buffer_size` of the kernel's buffers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slave = socket.socket()
        if buffer_size:
            slave.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_size)
        slave.connect(listener.getsockname())
        master, _ = listener.accept()
        if buffer_size:
            master.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_size)
    return SocketTransport(master), SocketTransport(slave)


async def connected(
    tls: HATls | None = None, buffer_size: int = 0, *, only_tls: bool = True
) -> tuple[TlsTransport, TlsTransport]:
    """Master's and slave's transport, with TLS. What one of them raises comes out as it is."""
    master, slave = sockets(buffer_size)
    tls, made, failures = tls or contexts(TlsConfig()), {}, {}

    async def begin(name, begins):
        try:
            made[name] = await begins
        except Exception as error:
            failures[name] = error

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin, "slave", begin_as_slave(slave, tls, why="haTls=true here"))
            nursery.start_soon(begin, "master", begin_as_master(master, tls, only_tls=only_tls))
    if failures:
        await master.aclose()
        await slave.aclose()
        raise ExceptionGroup("handshake", list(failures.values()))
    return made["master"], made["slave"]


async def test_no_report_begins_as_tls_does():
    """Offsets of a log have a first byte below 0x16; everything that is no offset is below zero."""
    assert struct.pack(">q", (22 << 56) - 1)[:1] < FIRST_BYTE
    assert (22 << 56) > 1 << 60, "more bytes than a log can have"
    tickets = [Tickets().give(NOBODY) for _ in range(100)]
    for report in (NO_REQUEST_YET, TICKET_MAX, *tickets, TICKET_MAX - ((1 << 62) - 1)):
        assert report < 0
        assert ACK.pack(report)[0] >= 0x80
    client = client_context(TlsConfig()).wrap_bio(ssl.MemoryBIO(), hello := ssl.MemoryBIO())
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    assert hello.read()[:1] == FIRST_BYTE


@pytest.mark.parametrize("first", [0, 5 << 40, NO_REQUEST_YET, TICKET_MAX])
async def test_a_plaintext_slave_keeps_the_very_same_transport(first):
    """Nothing stands between it and sendfile, and nothing was taken of what it sent."""
    master, slave = sockets()
    await slave.send(ACK.pack(first))
    assert await begin_as_master(master, contexts(TlsConfig()), only_tls=False) is master
    assert await master.receive() == ACK.pack(first)
    await slave.send(ACK.pack(first))
    with pytest.raises(HARefusedError, match=r"haTls=true here\. RocketMQ's slaves cannot"):
        await begin_as_master(master, contexts(TlsConfig()), only_tls=True)
    await slave.aclose()
    assert await begin_as_master(master, contexts(TlsConfig()), only_tls=True) is master, "a probe, which said nothing"
    await master.aclose()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_reports_and_frames_arrive(version):
    tls = contexts(TlsConfig())

    async def of_version() -> ssl.SSLContext:
        context = client_context(TlsConfig())
        context.maximum_version = version
        return context

    master, slave = await connected(evolve(tls, client=of_version))
    await slave.send(ACK.pack(7))
    assert await master.receive() == ACK.pack(7)
    body, buffer = os.urandom(50_000), memoryview(bytearray(1 << 20))
    assert master.send_batch_now(b"h" * 12, memoryview(body))
    assert master.sent_offset == 50_000
    size = 0
    while size < 50_012:
        size += await slave.receive_into(buffer[size:])
    assert buffer[:size] == b"h" * 12 + body
    await slave.aclose()
    assert await master.receive() == b""
    await master.aclose()


@pytest.mark.parametrize("buffer_size", [0, 4096])
@pytest.mark.parametrize("take", [1, 13, 5_000, 1 << 20])
async def test_a_batch_is_whole_whatever_the_sockets_take(tmp_path, nursery, buffer_size, take):
    """Over several pieces, a small socket, and buffers that never fit a record of TLS."""
    content = os.urandom(SIZE if take > 1000 else 40_000)
    (tmp_path / "log").write_bytes(content)
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    log = FileLog(fd, max_offset=len(content))
    master, slave = await connected(buffer_size=buffer_size)

    async def send() -> None:
        await master.send_batch(b"h" * 12, FileChunk(fd, 0, len(content)), log)
        await master.send_batch(b"e" * 12, None, log)

    nursery.start_soon(send)
    received, buffer = bytearray(), memoryview(bytearray(take))
    with trio.fail_after(30):
        while len(received) < len(content) + 24:
            received += buffer[: await slave.receive_into(buffer)]
    assert received == b"h" * 12 + content + b"e" * 12
    assert master.sent_offset == len(content)
    with trio.fail_after(5):
        while master.unsent_bytes():
            await trio.sleep(0.01)
    os.close(fd)
    await master.aclose()
    await slave.aclose()


async def test_a_thread_receives_while_the_slave_reports(tmp_path, nursery):
    """OpenSSL's connections are not for two threads."""
    content = os.urandom(8 * SIZE)
    (tmp_path / "log").write_bytes(content)
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    master, slave = await connected()

    class Log(FileLog):
        def chunk(self, offset, size_max):
            return FileChunk(self.fd, offset, min(size_max, len(content) - offset))

    async def send() -> None:
        await master.send_batch(b"h" * 12, FileChunk(fd, 0, len(content)), Log(fd))

    async def report() -> None:
        while True:
            await slave.send(ACK.pack(1))
            await trio.sleep(0.001)

    async def read() -> None:
        while True:
            await master.receive()

    received, buffer = bytearray(), memoryview(bytearray(600_000))
    with trio.fail_after(30):
        async with trio.open_nursery() as tasks:
            for task in (send, report, read):
                tasks.start_soon(task)
            while len(received) < len(content) + 12:
                step = Receive(size_max=1_000_000, seconds_max=0.05, gap_seconds=0.01)
                assert await slave.receive_bulk(buffer, lambda data: received.extend(data), step) != "ended"
            tasks.cancel_scope.cancel()
    assert received == b"h" * 12 + content
    with trio.move_on_after(0.05):  # A socket that is closed with reports in it resets its connection.
        await read()
    await master.aclose()
    with trio.fail_after(10):
        step = Receive(size_max=1_000_000, seconds_max=5, gap_seconds=1)
        assert await slave.receive_bulk(buffer, received.extend, step) == "ended"
    await slave.aclose()
    os.close(fd)


async def test_what_the_socket_does_not_take_is_sent_later():
    """A push is encrypted as soon as it is begun, so all of it has to follow, before anything else."""
    master, slave = await connected(buffer_size=4096)
    sent, received, buffer = bytearray(), bytearray(), memoryview(bytearray(1 << 20))
    for number in range(100):
        frame = bytes([number]) * 3000
        sent += b"h" * 12 + frame
        if not master.send_batch_now(b"h" * 12, memoryview(frame)):
            assert master.unsent_bytes() > 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(master.flush)
                received += buffer[: await slave.receive_into(buffer)]
                with trio.move_on_after(0.2):
                    while len(received) < len(sent):
                        received += buffer[: await slave.receive_into(buffer)]
    while len(received) < len(sent):
        received += buffer[: await slave.receive_into(buffer)]
    assert received == sent
    assert master.sent_offset == 300_000
    await slave.aclose()
    await master.aclose()


async def test_a_record_that_was_changed_on_the_way_ends_the_connection(nursery):
    """And so does a connection that is cut inside a record: nothing of that one is given out."""
    for change in ("changed", "cut"):
        master, slave = await connected()
        record = bytearray(master._encrypt(memoryview(bytes(1000))))
        if change == "changed":
            record[-1] ^= 1
        await master.lower.send(bytes(record if change == "changed" else record[:-1]))
        await master.aclose()
        buffer = memoryview(bytearray(2000))
        if change == "changed":
            with pytest.raises(HAConnectionLostError, match="the TLS connection failed"):
                await slave.receive_into(buffer)
        else:
            assert await slave.receive_into(buffer) == 0
        await slave.aclose()


async def test_who_is_not_trusted_is_told_by_name(tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("master")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other").certificate
    server = TlsConfig(server_cert=certificate, server_key=key)
    trusting = TlsConfig(auth_server=True, client_trust=authority.certificate)
    master, slave = await connected(contexts(server, trusting))
    await master.aclose()
    await slave.aclose()
    with pytest.raises(ExceptionGroup) as failed:
        await connected(contexts(server, TlsConfig(auth_server=True, client_trust=other)))
    slaves, masters = sorted(failed.value.exceptions, key=lambda error: isinstance(error, HARefusedError))
    assert isinstance(slaves, HATlsError)
    assert "haTls=true here, and there is no TLS connection" in str(slaves)
    assert "the certificate is not trusted" in str(slaves)
    assert "tls.client.trustCertPath here" in str(slaves)
    assert masters.cause == "tls"
    assert "unknown ca" in str(masters)


async def test_a_master_may_ask_for_certificates(tmp_path):
    """In TLS 1.3 a slave learns that its own is missed by the first read."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("master")
    server = TlsConfig(
        server_cert=certificate,
        server_key=key,
        auth_client=True,
        need_client_auth=ClientAuth.require,
        server_trust=authority.certificate,
    )
    certificate, key = authority.issue("slave")
    known = TlsConfig(client_cert=certificate, client_key=key)
    master, slave = await connected(contexts(server, known))
    await master.aclose()
    await slave.aclose()
    with pytest.raises(ExceptionGroup) as failed:
        await connected(contexts(server))
    (refused,) = failed.value.exceptions
    assert refused.cause == "tls"
    assert "peer did not return a certificate" in str(refused)


@pytest.mark.parametrize("answer", [b"", bytes(12), struct.pack(">qi", 22 << 56, 0)], ids=["closes", "ours", "real"])
async def test_a_master_without_tls_is_called_that(answer, nursery):
    """It takes the handshake for a request: twinlog 0.2 refuses that, RocketMQ sends heartbeats."""
    master, slave = sockets()

    async def old_master() -> None:
        await master.receive()
        if answer:
            await master.send(answer)
        else:
            await master.aclose()

    nursery.start_soon(old_master)
    with trio.fail_after(10), pytest.raises(HATlsError, match=r"RocketMQ, and twinlog 0\.2, have no TLS there"):
        await begin_as_slave(slave, contexts(TlsConfig()), why="haTls=true here")
    await slave.aclose()
    await master.aclose()


async def test_a_master_may_take_no_tls():
    master, slave = sockets()
    await slave.send(FIRST_BYTE)
    with pytest.raises(HARefusedError, match=r"tls\.server\.mode=disabled here"):
        await begin_as_master(master, evolve(contexts(TlsConfig()), server=None), only_tls=False)
    await slave.aclose()
    await master.aclose()


async def test_a_file_that_ends_early_ends_the_stream(tmp_path):
    (tmp_path / "log").write_bytes(bytes(PIECE_SIZE))
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    master, slave = await connected()
    with pytest.raises(HALogError, match=f"ends before offset {PIECE_SIZE}"):
        await master.send_batch(b"h" * 12, FileChunk(fd, 0, PIECE_SIZE + 1), FileLog(fd))
    os.close(fd)
    await slave.aclose()
    await master.aclose()

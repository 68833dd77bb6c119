"""TLS over real sockets between two stores: who is served, who is refused, and what a peer that says little costs."""

import os
import random
from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs

from tests.ha.services import connect, master_at, slave_at, until
from tests.ha.tls_contexts import contexts
from tests.helpers import RecordingSink, log_bytes, put
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.master.tickets import Holder
from twinlog.ha.wire.protocol import ACK

TLS = contexts(TlsConfig())
SECONDS = {"housekeeping_interval_ms": 1_000, "admission_timeout_ms": 400}


async def secure(stream: trio.SocketStream) -> trio.SSLStream:
    """A peer that completes the handshake."""
    made = trio.SSLStream(stream, await TLS.client(), server_hostname="x", https_compatible=True)
    await made.do_handshake()
    return made


async def test_a_slave_follows_over_tls(tmp_path):
    """What was there before, then each message; producers are released by its acks, and both ends say that it is TLS."""
    async with (
        master_at(tmp_path, secure=TLS, tls=True) as master,
        slave_at(tmp_path, secure=TLS, tls=True) as slave,
    ):
        for _ in range(300):
            put(master.store, os.urandom(3000))
        slave.ha.set_master(master.address)
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        sink = RecordingSink()
        master.ha.group_transfer.wait(put(master.store, b"waited for"), sink, b"frame")
        await until(lambda: sink.answered == [b"frame"])
        assert log_bytes(slave.store) == log_bytes(master.store)
        assert [each.tls for each in master.ha.statistics().connections] == [True]
        assert slave.ha.statistics().client.tls


@pytest.mark.parametrize(("master_only", "slave_only", "over_tls"), [(False, False, False), (False, True, True)])
async def test_each_member_may_be_the_first(tmp_path, master_only, slave_only, over_tls):
    async with (
        master_at(tmp_path, secure=TLS, tls=master_only) as master,
        slave_at(tmp_path, secure=TLS, tls=slave_only) as slave,
    ):
        put(master.store, b"x" * 5000)
        slave.ha.set_master(master.address)
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        assert [each.tls for each in master.ha.statistics().connections] == [over_tls]


async def test_a_stream_that_is_cut_goes_on_where_the_log_ends(tmp_path, nursery):
    """Inside records of TLS, of frames and of messages, after so many bytes each time; what is in the log is whole and equal."""
    rnd, cuts = random.Random(5), []
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def between(slave: trio.SocketStream) -> None:
        left = rnd.randrange(1_000, 60_000)
        async with slave, await trio.open_tcp_stream("127.0.0.1", master.port) as there, trio.open_nursery() as tasks:
            tasks.start_soon(_pass_on, slave, there)
            while data := await there.receive_some():
                if left < len(data) and len(cuts) < 10:
                    cuts.append(left)
                    await slave.send_all(data[:left])
                    break
                left = max(left - len(data), 0)
                await slave.send_all(data)
            tasks.cancel_scope.cancel()

    async with (
        master_at(tmp_path, secure=TLS, tls=True) as master,
        slave_at(tmp_path, secure=TLS, tls=True, reconnect_wait_max_ms=50) as slave,
    ):
        for _ in range(300):
            put(master.store, os.urandom(rnd.randrange(1, 3000)))
        nursery.start_soon(trio.serve_listeners, between, listeners)
        port = listeners[0].socket.getsockname()[1]
        slave.ha.set_master(f"127.0.0.1:{port}")
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        assert len(cuts) == 10
        assert log_bytes(slave.store) == log_bytes(master.store)
    nursery.cancel_scope.cancel()


async def _pass_on(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
    with suppress(trio.BrokenResourceError):
        while data := await source.receive_some():
            await target.send_all(data)


async def test_a_plaintext_slave_is_refused_with_a_reason(tmp_path):
    """A RocketMQ slave, or a twinlog slave that could not ask: it is refused before it has a byte."""
    with capture_logs() as lines:
        async with master_at(tmp_path, secure=TLS, tls=True) as master:
            put(master.store, b"secret")
            async with await connect(master, 0) as stream:
                assert await stream.receive_some() == b""
            await until(lambda: master.ha.statistics().refused["tls"] == 1)
    (line,) = [line for line in lines if line["event"] == "slave refused"]
    assert line["cause"] == "tls"
    assert "RocketMQ's slaves cannot" in line["why"]


async def test_a_peer_that_is_not_known_shows_its_ticket_behind_tls(tmp_path):
    """Its IP is nobody's; only a task that completes the handshake can see the ticket. Then its request counts as any other."""
    async with master_at(tmp_path, slaves=("m",), secure=TLS, **SECONDS) as master:
        put(master.store, b"x" * 500)
        master.ha.connection_admission.has_record = lambda: True
        stream = await secure(await connect(master, ip="127.0.0.9"))
        await stream.send_all(ACK.pack(master.ha.ticket_for(Holder("m")))[:3])
        await trio.sleep(0.05)
        assert not master.ha.statistics().connections
        await stream.aclose()
        stream = await secure(await connect(master, ip="127.0.0.9"))
        await stream.send_all(ACK.pack(master.ha.ticket_for(Holder("m"))) + ACK.pack(0))
        with trio.fail_after(5):
            assert await stream.receive_some()
        (connection,) = master.ha.statistics().connections
        assert (connection.member, connection.tls, connection.admitted) == ("m", True, True)
        await stream.aclose()


async def test_a_peer_whose_ip_is_registered_meanwhile_is_served(tmp_path):
    """While it shakes hands, and while it waits after its request."""
    async with master_at(tmp_path, slaves=(), secure=TLS) as master:
        put(master.store, b"x" * 500)
        waiting = await secure(await connect(master, ip="127.0.0.9"))
        await waiting.send_all(ACK.pack(0))
        half = await connect(master, ip="127.0.0.9")
        await half.send_all(b"\x16\x03")
        pending = master.ha.connection_admission.pending
        await until(
            lambda: (
                [(each.asked_at is not None, each.secure is not None) for each in pending.connections.values()]
                == [(True, True), (False, True)]
            )
        )
        master.ha.members_changed(["127.0.0.9"])
        with trio.fail_after(5):
            assert await waiting.receive_some()
        assert len(pending.connections) == 1, "its task reads it: nobody else may"
        await half.aclose()
        await until(lambda: not pending.connections)
        await waiting.aclose()


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.0.0.9"], ids=["slave", "stranger"])
@pytest.mark.parametrize("says", [b"", b"\x16", b"\x16\x03\x01\x02\x00" + bytes(50), b"\x16" * 600])
async def test_a_handshake_that_is_never_completed_is_ended(tmp_path, ip, says):
    """As any connection that makes no request. One that says nothing has neither a task nor a buffer."""
    async with master_at(tmp_path, secure=TLS, **SECONDS) as master:
        stream = await connect(master, ip=ip)
        await stream.send_all(says)
        if not says and ip == "127.0.0.9":
            pending = master.ha.connection_admission.pending.connections
            await until(lambda: len(pending) == 1)
            assert [each.secure for each in pending.values()] == [None]
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            while await stream.receive_some():  # An alert.
                pass
        await stream.aclose()
        await until(lambda: not master.ha.statistics().connections)
        assert not master.ha.connection_admission.pending.connections


async def test_many_that_begin_and_stop_leave_nothing_behind(tmp_path):
    """More than there is room for; a slave gets in beside them."""
    async with (
        master_at(tmp_path, secure=TLS, tls=True, connections_max=20, connections_per_address_max=15) as master,
        slave_at(tmp_path, secure=TLS, tls=True) as slave,
    ):
        put(master.store, b"x" * 500)
        streams = [await connect(master, ip=f"127.0.0.{9 + number % 3}") for number in range(60)]
        for stream in streams:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(b"\x16\x03\x01")
        slave.ha.set_master(master.address)
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        master.ha.end_slaves("test")
        assert not master.ha.connection_admission.pending.connections
        for stream in streams:
            await stream.aclose()
        await until(lambda: slave.ha.statistics().client.state == "streaming")


async def test_a_master_that_stops_takes_handshakes_along(tmp_path):
    """Its listener, and a handshake that is half done."""
    async with master_at(tmp_path, slaves=(), secure=TLS) as master:
        stream = await connect(master, ip="127.0.0.9")
        await stream.send_all(b"\x16\x03")
        await until(lambda: any(each.secure for each in master.ha.connection_admission.pending.connections.values()))
    await stream.aclose()

"""TLS on the same port: which connections are accepted, and how wrong ones end."""

import os
import socket
import ssl
import struct
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from cryptography import x509
from structlog.testing import capture_logs

from tests.cluster.remoting.certificates import Authority, shaken
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand, encode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import BEHIND_BYTES
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RemotingConnectError, TlsFilesError
from twinlog.cluster.remoting.server import RemotingServer, open_listener
from twinlog.cluster.remoting.tls.channel import HANDSHAKE_READ_SIZE, READ_SIZE
from twinlog.cluster.remoting.tls.config import ClientAuth, TlsConfig, TlsMode
from twinlog.cluster.remoting.tls.contexts import client_context, self_signed, server_context
from twinlog.cluster.remoting.tls.renewed import ServerTls, client_tls

DOUBLE = 310


def double(connection, commands):
    """Answers with the body, twice."""
    for command in commands:
        answer = RemotingCommand.response_to(command, 0, body=bytes(command.body) * 2)
        connection.send(answer)


@asynccontextmanager
async def serving(tls=None, **config):
    """A server on a free port, and its address."""
    listener = open_listener("127.0.0.1", 0)
    server = RemotingServer(
        Dispatcher({}, ServerConfig(**config), double, (DOUBLE,)), ServerConfig(**config), ServerTls(tls or TlsConfig())
    )
    host, port = listener.getsockname()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, listener)
        with trio.fail_after(60):
            yield server, f"{host}:{port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client(config=None):
    """A client; with a configuration it uses TLS."""
    client = RemotingClient(tls=client_context(config) if config is not None else None)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def ask(address, config=None, body=b"x"):
    failure = None
    async with client(config) as asking:
        try:
            answer = await asking.request(address, RemotingCommand(DOUBLE, body=body), timeout_ms=20_000)
        except RemotingConnectError as error:
            failure = error  # Raised in here it would come out in a group.
    if failure is not None:
        raise failure
    return bytes(answer.body)


@pytest.fixture
def patient(autojump_clock):
    """Certificates are made in a thread, for which the virtual clock would not wait."""
    autojump_clock.autojump_threshold = 0.2


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def files(authority, **more):
    """A server with a certificate of the authority."""
    certificate, key = authority.issue("server")
    return TlsConfig(test_mode=False, server_cert=certificate, server_key=key, **more)


# Which connections are taken


@pytest.mark.parametrize(
    ("mode", "plain", "secure"),
    [(TlsMode.disabled, True, False), (TlsMode.permissive, True, True), (TlsMode.enforcing, False, True)],
)
async def test_which_connections_a_mode_takes(mode, plain, secure):
    """Both kinds of connections use the same port."""
    async with serving(TlsConfig(mode=mode)) as (_, address):
        for config, taken in ((None, plain), (TlsConfig(), secure)):
            with capture_logs() as logs:
                if taken:
                    assert await ask(address, config) == b"xx"
                    assert logs == []
                else:
                    with pytest.raises(RemotingConnectError) as refused:
                        await ask(address, config)
                    assert ("is tls.server.mode=disabled there?" in str(refused.value)) is (config is not None)
                    assert [mode.value in entry["why"] for entry in logs] == [True]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [0, 1, 16_384, READ_SIZE + 1, 7_000_000])
async def test_bodies_of_any_size_pass(version, size):
    body = os.urandom(size)
    async with serving() as (_, address), client(TlsConfig()) as asking:
        asking.tls.minimum_version = asking.tls.maximum_version = version
        answer = await asking.request(address, RemotingCommand(DOUBLE, body=body), timeout_ms=20_000)
    assert answer.body == body * 2


async def test_many_requests_share_a_connection(nursery):
    answers = {}
    async with serving() as (server, address), client(TlsConfig()) as asking:

        async def one(number):
            answer = await asking.request(address, RemotingCommand(DOUBLE, body=b"%d" % number))
            answers[number] = bytes(answer.body)

        async with trio.open_nursery() as asks:
            for number in range(200):
                asks.start_soon(one, number)
        assert len(server.connections) == 1
        (connection,) = server.connections
        assert connection.secure is not None
    assert answers == {number: b"%d" % number * 2 for number in range(200)}


# Who is trusted


async def test_a_client_may_check_the_server(authority, tmp_path):
    trusting = TlsConfig(test_mode=False, auth_server=True, client_trust=authority.certificate)
    other = tmp_path / "other"
    other.mkdir()
    doubting = TlsConfig(test_mode=False, auth_server=True, client_trust=Authority(other).certificate)
    async with serving(files(authority)) as (_, address):
        assert await ask(address, trusting) == b"xx"
        with capture_logs() as logs, pytest.raises(RemotingConnectError, match="certificate is not trusted"):
            await ask(address, doubting)
        assert len(logs) <= 1


@pytest.mark.parametrize(
    ("need", "without", "stranger"),
    [(ClientAuth.none, True, True), (ClientAuth.optional, True, False), (ClientAuth.require, False, False)],
)
async def test_a_server_may_check_its_clients(authority, tmp_path, need, without, stranger):
    other = tmp_path / "other"
    other.mkdir()
    certificate, key = authority.issue("client", password="open it")
    known = TlsConfig(test_mode=False, client_cert=certificate, client_key=key, client_key_password="open it")
    certificate, key = Authority(other).issue("stranger")
    unknown = TlsConfig(test_mode=False, client_cert=certificate, client_key=key)
    config = files(authority, auth_client=True, need_client_auth=need, server_trust=authority.certificate)
    async with serving(config) as (_, address):
        assert await ask(address, known) == b"xx"
        for tried, taken in ((TlsConfig(test_mode=False), without), (unknown, stranger)):
            with capture_logs():
                if taken:
                    assert await ask(address, tried) == b"xx"
                else:
                    with pytest.raises(RemotingConnectError):
                        await ask(address, tried)


def test_certificates_are_not_asked_for_when_any_would_do(authority):
    """RocketMQ would accept any certificate: a reader of `require` expects otherwise."""
    with capture_logs() as logs:
        context = server_context(files(authority, need_client_auth=ClientAuth.require))
    assert context.verify_mode is ssl.CERT_NONE
    assert len(logs) == 1


# Files


async def test_new_files_of_a_client_are_used_without_a_restart(authority, patient, autojump_clock):
    """The authority changes on all members, one after the other."""
    trust = authority.directory / "trust.pem"
    trust.write_bytes(authority.certificate.read_bytes())
    tls = client_tls(TlsConfig(auth_server=True, client_trust=trust))
    before = await tls.current()
    await trio.sleep(2)
    assert await tls.current() is before
    trust.write_bytes(Authority(authority.directory, "next").certificate.read_bytes() + trust.read_bytes())
    await trio.sleep(2)
    after = await tls.current()
    assert len(after.get_ca_certs()) == len(before.get_ca_certs()) + 1
    trust.write_text("nonsense")
    await trio.sleep(2)
    assert await tls.current() is after


async def test_new_files_are_used_without_a_restart(authority, patient, autojump_clock):
    config = files(authority)
    async with serving(config) as (server, address):
        before = await server.tls.context()
        await trio.sleep(2)
        assert await server.tls.context() is before
        authority.issue("server")
        await trio.sleep(2)
        assert await server.tls.context() is not before
        assert (
            await ask(address, TlsConfig(test_mode=False, auth_server=True, client_trust=authority.certificate))
            == b"xx"
        )


async def test_bad_new_files_leave_the_old_ones_in_use(authority, patient, autojump_clock):
    config = files(authority)
    async with serving(config) as (server, _address):
        before = await server.tls.context()
        config.server_cert.write_text("nonsense")
        await trio.sleep(2)
        with capture_logs() as logs:
            assert await server.tls.context() is before
            await trio.sleep(2)
            assert await server.tls.context() is before
        assert [entry["log_level"] for entry in logs] == ["error"]


def bad_configs(authority):
    certificate, key = authority.issue("server", password="secret")
    gone, nonsense = authority.directory / "gone.pem", authority.directory / "nonsense.pem"
    nonsense.write_text("nonsense")
    files = {"test_mode": False, "server_cert": certificate, "server_key": key, "server_key_password": "secret"}
    return {
        "certPath=.*gone": {**files, "server_cert": gone},
        "keyPath=.*gone": {**files, "server_key": gone},
        "nonsense": {**files, "server_cert": nonsense},
        "set tls.server.keyPassword": {**files, "server_key_password": None},
        "keyPath": {**files, "server_key_password": "wrong"},
        "trustCertPath=.*nonsense": {**files, "auth_client": True, "server_trust": nonsense},
        "enforcing.*need": {"test_mode": False, "mode": TlsMode.enforcing},
        "tls.members.enable=true with": {"members": True, "mode": TlsMode.disabled},
    }


def test_what_is_wrong_with_the_files_is_said_at_the_start(authority):
    for words, config in bad_configs(authority).items():
        with pytest.raises(TlsFilesError, match=words) as caught:
            ServerTls(TlsConfig(**config)).check()
        assert "secret" not in str(caught.value)


SERVER = {
    "server_cert": Path("/c"),
    "auth_client": True,
    "need_client_auth": ClientAuth.require,
    "server_trust": Path("/t"),
}
CLIENT = {"auth_server": True, "client_cert": Path("/c"), "client_trust": Path("/t")}


@pytest.mark.parametrize("name", SERVER)
def test_what_test_mode_makes_void_is_no_start(name):
    """RocketMQ ignores it silently, so that users believe to be safe and are not."""
    with pytest.raises(TlsFilesError, match=r"tls\.test\.mode\.enable=true makes tls\.server\..* void"):
        ServerTls(TlsConfig(test_mode=True, **{name: SERVER[name]})).check()
    assert not TlsConfig(**{name: SERVER[name]}).server_test_mode
    assert TlsConfig(**{name: SERVER[name]}).client_test_mode
    with pytest.raises(TlsFilesError, match="certPath"):
        ServerTls(TlsConfig(**{name: SERVER[name]})).check()


@pytest.mark.parametrize("name", CLIENT)
def test_what_test_mode_makes_void_is_no_client(name):
    with pytest.raises(TlsFilesError, match=r"tls\.test\.mode\.enable=true makes tls\.client\..* void"):
        client_context(TlsConfig(test_mode=True, **{name: CLIENT[name]}))
    assert not TlsConfig(**{name: CLIENT[name]}).client_test_mode
    assert TlsConfig(**{name: CLIENT[name]}).server_test_mode


def test_a_client_that_is_to_check_does(authority):
    assert client_context(TlsConfig(auth_server=True)).verify_mode is ssl.CERT_REQUIRED
    assert client_context(TlsConfig()).verify_mode is ssl.CERT_NONE


def test_the_password_is_in_no_text():
    assert "hidden" not in str(TlsConfig(server_key_password="hidden", client_key_password="hidden"))


def test_nothing_is_made_before_it_is_needed():
    """A permissive server without files starts without a certificate."""
    tls = ServerTls(TlsConfig())
    tls.check()
    assert tls._renewed._context is None


@pytest.mark.parametrize(("name", "called"), [("máquina", "localhost"), ("broker-a", "broker-a")])
def test_a_machine_of_any_name_gets_a_certificate(monkeypatch, name, called):
    monkeypatch.setattr("platform.node", lambda: name)
    certificate = x509.load_pem_x509_certificate(self_signed())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [called]


async def test_without_cryptography_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TlsFilesError, match=r"tls\.server\.certPath"):
        await ServerTls(TlsConfig()).context()


# Peers that do it wrong


async def hello(address):
    """A connection whose server waits for the rest of the handshake."""
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return stream, outgoing.read()


async def ends(stream):
    """Read to the end of the connection."""
    with trio.fail_after(60), suppress(trio.BrokenResourceError):
        while await stream.receive_some(4096):
            pass
    stream.socket.close()


async def test_a_handshake_has_its_time(patient, autojump_clock):
    async with serving(handshake_seconds_max=10) as (server, address):
        stream, first = await hello(address)
        await stream.send_all(first[:50])
        with capture_logs() as logs:
            await ends(stream)
        assert 10 <= trio.current_time() <= 11
        assert ["10 s" in entry["why"] for entry in logs] == [True]
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == set()


BAD = {
    "noise": b"\x16\x03\x01\x02\x00" + bytes(range(256)) * 2,
    "an old version": b"\x16\x02\x00\x00\x05hello",
    "a record that is too long": b"\x16\x03\x01\xff\xff" + bytes(70_000),
    "one byte": b"\x16",
    "zeros": b"\x16" + bytes(100_000),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
async def test_bad_handshakes_end_the_connection_with_one_line(data, patient, autojump_clock):
    async with serving() as (_, address):
        host, _, port = address.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        with capture_logs() as logs:
            await stream.send_all(data)
            await ends(stream)
        assert [bool(entry["why"]) for entry in logs] == [True]
        assert await ask(address, TlsConfig()) == b"xx"


async def test_a_frame_that_is_bad_ends_a_secure_connection_too():
    async with serving() as (server, address), client(TlsConfig()) as asking:
        await asking.request(address, RemotingCommand(DOUBLE))
        connection = asking.connection_of(address)
        with capture_logs() as logs:
            connection._put(b"GET / HTTP/1.1\r\n\r\n")
            while server.connections:
                await trio.sleep(0.01)
        assert len(logs) == 1


async def test_a_peer_that_leaves_in_the_handshake_is_forgotten():
    async with serving() as (server, address):
        stream, first = await hello(address)
        await stream.send_all(first)
        await stream.receive_some(1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        while server.connections:
            await trio.sleep(0.01)


async def test_a_secure_peer_that_does_not_read_is_not_read_from():
    """Its unsent bytes stay near the limit, however much it requests."""
    async with serving() as (server, address), client(TlsConfig()) as asking:
        await asking.request(address, RemotingCommand(DOUBLE))
        connection = asking.connection_of(address)
        (served,) = server.connections
        with trio.CancelScope() as scope:

            async def never(_size=None):
                await trio.sleep_forever()

            connection.stream.transport_stream.receive_some = never
            frame = encode(RemotingCommand(DOUBLE, body=bytes(100_000)))
            for _ in range(50):
                while connection._outbox_size > 1 << 20 and not served.is_behind:
                    await trio.sleep(0.001)
                for _ in range(10):
                    connection._put(frame)
                if served.is_behind:
                    break
                await trio.sleep(0.001)
            scope.cancel()
        assert served.is_behind
        assert served.unsent_bytes < BEHIND_BYTES + (4 << 20)


# The channel alone


@pytest.mark.parametrize("step", [1, 777, 16_384, 20_000, 100_000])
def test_plaintext_does_not_depend_on_where_ciphertext_is_cut(step):
    server, peer, _, outgoing = shaken()
    data, got = os.urandom(40_000), b""
    peer.write(data)
    wire, buffer = outgoing.read(), memoryview(bytearray(100_000))
    for at in range(0, len(wire), step):
        size = server.decrypt(wire[at : at + step], buffer)
        got += bytes(buffer[:size])
    assert got == data


def test_buffers_are_sent_in_order_and_in_pieces():
    server, peer, incoming, _ = shaken()
    buffers = [b"head", memoryview(os.urandom(200_000)), b"", b"tail"]
    pieces = server.encrypt(buffers)
    assert max(map(len, pieces)) < HANDSHAKE_READ_SIZE + 2000
    incoming.write(b"".join(pieces))
    wanted, got = b"".join(map(bytes, buffers)), b""
    while len(got) < len(wanted):
        got += peer.read(100_000)
    assert got == wanted


def test_a_goodbye_is_an_end():
    server, peer, _, outgoing = shaken()
    with pytest.raises(ssl.SSLWantReadError):
        peer.unwrap()
    assert server.decrypt(outgoing.read(), memoryview(bytearray(10))) == 0
    assert server.ended

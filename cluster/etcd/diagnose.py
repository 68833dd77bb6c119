"""Findings about the way to etcd, for `twinlog doctor`: what stands between this process and each endpoint, and how to mend it.

Each endpoint is asked by itself: its status, a linearizable read, and a swap that expects a revision that no key ever has. etcd
checks the rights of such a swap, and writes nothing.
"""

import re
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import trio
from attrs import frozen

from twinlog.cluster.etcd import gateway
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.errors import EtcdError, Refused
from twinlog.cluster.etcd.gateway import Failure
from twinlog.cluster.etcd.protocol import Put, Status
from twinlog.cluster.etcd.transport import Transport, certificate_failure, context_of

OLDEST = (3, 4)  # The first one whose gateway is at /v3.
SLOW_MS = 1_000.0
NEVER = (1 << 63) - 1  # A mod_revision that no key has.
_PROBE = ".doctor"

NO_TLS = Failure(cause="no TLS there", what="it speaks HTTP without TLS", fix="write http:// in etcdEndpoints")


@frozen(kw_only=True)
class EtcdFinding:
    """A problem, as observe's Finding has it. `level`: critical, warning or note; `subject`: an endpoint, or all of them."""

    level: str
    cause: str
    subject: str
    what: str
    fix: str = ""


@frozen
class Asked:
    """The answers of one endpoint: a status, the time of a linearizable read, and the first error."""

    endpoint: str
    status: Status | None
    read_ms: float | None
    error: EtcdError | None


async def diagnose(config: EtcdConfig) -> tuple[EtcdFinding, ...]:
    """All findings, worst first; none: it all works. Takes no longer than twice etcdRequestTimeoutMs, and raises nothing."""
    if not config.endpoints:
        return ()
    try:
        async with Transport(config) as transport:
            answers = await _ask_all(transport)
            sign_in_is_off = transport.sign_in_is_off
    except Refused as error:
        return (_of(error, "critical", ", ".join(config.endpoints)),)
    found = [*_of_endpoints(answers), *_of_cluster(answers), *_of_sign_in(config, sign_in_is_off)]
    levels = ("critical", "warning", "note")
    return tuple(sorted(found, key=lambda each: levels.index(each.level)))


async def _ask_all(transport: Transport) -> list[Asked]:
    found: dict[str, Asked] = {}

    async def ask(endpoint: str) -> None:
        found[endpoint] = await _ask(transport, endpoint)

    async with trio.open_nursery() as nursery:
        for endpoint in transport.config.endpoints:
            nursery.start_soon(ask, endpoint)
    return [found[endpoint] for endpoint in transport.config.endpoints]


async def _ask(transport: Transport, endpoint: str) -> Asked:
    key = transport.config.prefix + _PROBE
    status, read_ms = None, None
    try:
        reply = await transport.ask_at(endpoint, gateway.STATUS)
        status = gateway.status_of(reply, endpoint, 0)
        began = trio.current_time()
        await transport.ask_at(endpoint, gateway.get(key))
        read_ms = (trio.current_time() - began) * 1000
        await transport.ask_at(endpoint, gateway.swap(key, NEVER, [Put(key, b"")]))
        return Asked(endpoint, status, read_ms, None)
    except EtcdError as error:
        return Asked(endpoint, status, read_ms, await _closer_look(transport.config, endpoint, error))
    except (KeyError, ValueError, TypeError, AttributeError):
        return Asked(endpoint, None, None, gateway.odd(b"its status").error(gateway.STATUS, endpoint))


async def _closer_look(config: EtcdConfig, endpoint: str, error: EtcdError) -> EtcdError:
    """A lost connection may be a handshake that failed, and its alert lost with it: shake hands and send nothing."""
    if error.cause not in ("connection lost", "TLS failed"):
        return error
    try:
        failure = await _shaken(config, endpoint)
    except OSError:  # Of the connection: the first error says it.
        return error
    return failure.error(gateway.STATUS, endpoint) if failure else error


async def _shaken(config: EtcdConfig, endpoint: str) -> Failure | None:
    """The finding of a handshake; None: nothing wrong with it."""
    url = urlsplit(endpoint)
    assert url.hostname is not None
    assert url.port is not None
    failure: Failure | None = None
    with trio.move_on_after(config.dial_timeout_ms / 1000):
        async with await trio.open_tcp_stream(url.hostname, url.port) as stream:
            if config.is_tls:
                context = context_of(config)
                assert isinstance(context, ssl.SSLContext)
            else:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            tls = trio.SSLStream(stream, context, server_hostname=url.hostname, https_compatible=True)
            try:
                await tls.do_handshake()
                if not config.is_tls:
                    return gateway.TLS_DEMANDED
                await tls.receive_some(1)  # With TLS 1.3 the word about our certificate comes after the handshake.
            except trio.BrokenResourceError as error:
                failure = certificate_failure(error, was_sent=False)
                if failure is None and config.is_tls and error.__cause__ is not None:
                    failure = await _without_tls(url.hostname, url.port)
    return failure


async def _without_tls(host: str, port: int) -> Failure | None:
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(f"GET /version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await stream.receive_some()
    return NO_TLS if answer.startswith(b"HTTP/1.1 200") else None


def _of_endpoints(answers: list[Asked]) -> Iterator[EtcdFinding]:
    works = [each for each in answers if each.error is None]
    for each in answers:
        if each.error is not None:
            # What one member refuses, others may grant; none of them works: that is more.
            yield _of(each.error, "warning" if works else "critical", each.endpoint)
        if each.read_ms is not None and each.read_ms > SLOW_MS:
            yield EtcdFinding(
                level="warning",
                cause="slow etcd",
                subject=each.endpoint,
                what=f"a linearizable read took {each.read_ms:.0f} ms",
                fix="see etcd's metrics of its disk, etcd_disk_wal_fsync_duration_seconds, and of its network",
            )
        if each.status is not None and _version(each.status) < OLDEST:
            yield EtcdFinding(
                level="warning",
                cause="old version",
                subject=each.endpoint,
                what=f"etcd {each.status.version} is older than 3.4, the oldest that is tested",
                fix="upgrade etcd",
            )


def _of_cluster(answers: list[Asked]) -> Iterator[EtcdFinding]:
    statuses = [each.status for each in answers if each.status is not None]
    everybody = ", ".join(each.endpoint for each in answers)
    if len(clusters := {each.cluster_id for each in statuses}) > 1:
        yield EtcdFinding(
            level="critical",
            cause="several clusters",
            subject=everybody,
            what=f"the endpoints belong to {len(clusters)} different clusters of etcd: "
            + ", ".join(f"{each.endpoint} to {each.cluster_id:x}" for each in statuses),
            fix="name the members of one cluster in etcdEndpoints, the same on each member of the group",
        )
    for each in statuses:
        if not each.leader:
            yield EtcdFinding(
                level="critical" if len(statuses) == 1 else "warning",
                cause=gateway.NO_LEADER.cause,
                subject=each.endpoint,
                what="this member of etcd knows no leader",
                fix=gateway.NO_LEADER.fix,
            )
    for alarm in sorted({alarm for each in statuses for alarm in each.alarms}):
        failure = gateway.failure_of(500, _ALARMS.get(alarm, alarm).encode())
        yield EtcdFinding(
            level="critical",
            cause=failure.cause,
            subject=everybody,
            what=f"etcd has raised its alarm {alarm}: {failure.what}",
            fix=failure.fix,
        )
    if len(answers) == 1:
        yield EtcdFinding(
            level="note",
            cause="one endpoint",
            subject=everybody,
            what="without this one member of etcd the group's in-sync set cannot change",
            fix="run three members of etcd, and name them all in etcdEndpoints",
        )


_ALARMS = {"NOSPACE": "database space exceeded", "CORRUPT": "corrupt cluster"}


def _of_sign_in(config: EtcdConfig, sign_in_is_off: bool) -> Iterator[EtcdFinding]:
    everybody = ", ".join(config.endpoints)
    if sign_in_is_off:
        yield EtcdFinding(
            level="warning",
            cause=gateway.SIGN_IN_OFF.cause,
            subject=everybody,
            what=f"etcdUsername={config.username}, and etcd lets everybody read and write: its sign-in is not enabled",
            fix="`etcdctl auth enable`; if it was enabled before, etcd has lost its data",
        )
    if config.username and not config.is_tls and not all(_is_loopback(each) for each in config.endpoints):
        yield EtcdFinding(
            level="warning",
            cause="password in the clear",
            subject=everybody,
            what="the password of etcdUsername travels without TLS",
            fix="give etcd a certificate, and write https:// in etcdEndpoints",
        )


def _of(error: EtcdError, level: str, subject: str) -> EtcdFinding:
    return EtcdFinding(level=level, cause=error.cause, subject=subject, what=error.what, fix=error.fix)


def _version(status: Status) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", status.version)[:2])


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

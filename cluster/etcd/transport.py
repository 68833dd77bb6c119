"""Requests to etcd's endpoints over HTTP: one that works is kept, the next one is asked when it fails; sign-in; time limits.

A write that was sent, and not answered, is Unknown at once: no other endpoint is asked, since a second try could meet the first
one's effect. What may be repeated is asked of the next endpoint beside a slow one, and the first answer counts.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Self

import httpx
import orjson
import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.etcd import gateway
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.errors import EtcdError, Refused, Unavailable, Unknown
from twinlog.cluster.etcd.gateway import Call, Effect, Failure, Json
from twinlog.cluster.etcd.protocol import Header

_BODY_MAX = 16 << 20  # Bounds memory when something else answers there.
# No proxy on the way may compress: what is read is the body as it came.
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_STARTED = ".send_request_headers.started"  # httpcore's trace, as httpx documents it: from here on bytes may leave.
# Alerts about our certificate end a handshake; with TLS 1.3 they arrive when the request has left, and is thrown away there.
_OUR_CERTIFICATE = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "HANDSHAKE_FAILURE",
    "ACCESS_DENIED",
)


NO_CONNECTION = "no connection"


class _Body(httpx.AsyncByteStream):
    """A request's body. httpx's own is a generator, which is left to the garbage collector where a connection breaks."""

    def __init__(self, body: bytes) -> None:
        self._parts = [body]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()


class FailedError(Exception):
    """A request to one endpoint failed; the transport decides what follows."""

    def __init__(self, failure: Failure, endpoint: str) -> None:
        super().__init__(failure.what)
        self.failure, self.endpoint = failure, endpoint

    @property
    def is_an_answer(self) -> bool:
        """True when etcd itself answered the question; others would say the same."""
        return self.failure.cause == gateway.LEASE


@frozen
class Answer:
    """A reply, and who gave it."""

    reply: Json
    endpoint: str


@define(eq=False)
class Transport:
    """One client's connections. Enter it first."""

    config: EtcdConfig
    header: Header | None = field(default=None, init=False)  # Of the newest answer.
    _client: httpx.AsyncClient = field(init=False)
    _first: int = field(default=0, init=False)  # The endpoint that is asked first: one that works, as far as is known.
    _token: str | None = field(default=None, init=False)  # None: sign in first. Empty: etcd's sign-in is off.

    async def __aenter__(self) -> Self:
        """Raises Refused for files that cannot be read."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        # Without trust_env, so that no proxy of the environment's stands between us and etcd.
        self._client = httpx.AsyncClient(verify=context_of(self.config), trust_env=False, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @property
    def sign_in_is_off(self) -> bool:
        """True when we have a user's name, and etcd said that it asks nobody for one."""
        return bool(self.config.username) and self._token == ""

    async def ask(self, call: Call) -> Json:
        """Send a request until an endpoint answers it, within etcdRequestTimeoutMs. Raises EtcdError."""
        deadline = trio.current_time() + self.config.request_timeout_ms / 1000
        answer = await (self._in_turn(call, deadline) if call.effect is Effect.ONCE else self._race(call, deadline))
        self._first = self.config.endpoints.index(answer.endpoint)
        self.header = gateway.header_of(answer.reply)
        return answer.reply

    async def ask_at(self, endpoint: str, call: Call) -> Json:
        """Send a request to this endpoint and no other. Raises EtcdError."""
        try:
            return (
                await self._signed(endpoint, call, trio.current_time() + self.config.request_timeout_ms / 1000)
            ).reply
        except FailedError as error:
            raise error.failure.error(call, endpoint) from error.__cause__

    async def _in_turn(self, call: Call, deadline: float) -> Answer:
        """One endpoint after the other, as long as what was asked for has certainly not happened."""
        failed: list[FailedError] = []
        for endpoint in self._in_order():
            if failed and trio.current_time() >= deadline:
                break
            try:
                return await self._signed(endpoint, call, deadline)
            except FailedError as error:
                failed.append(error)
                if error.is_an_answer:
                    break
                self._pass_over(endpoint)
                if not error.failure.certain:
                    break
        raise _error(call, failed)

    async def _race(self, call: Call, deadline: float) -> Answer:
        """The first one, and another one beside it each time that nobody has answered for its share of the time."""
        order, answers, failed = self._in_order(), list[Answer](), list[FailedError]()
        share = (deadline - trio.current_time()) / len(order)

        async def attempt(endpoint: str, ended: trio.Event) -> None:
            try:
                answers.append(await self._signed(endpoint, call, deadline))
                nursery.cancel_scope.cancel()
            except FailedError as error:
                failed.append(error)
                if error.is_an_answer:
                    nursery.cancel_scope.cancel()
                else:
                    self._pass_over(endpoint)
            ended.set()

        async with trio.open_nursery() as nursery:
            for endpoint in order:
                ended = trio.Event()
                nursery.start_soon(attempt, endpoint, ended)
                with trio.move_on_after(share):
                    await ended.wait()
        if answers:
            return answers[0]
        raise _error(call, failed)

    def _in_order(self) -> Sequence[str]:
        endpoints = self.config.endpoints
        if not endpoints:
            raise Refused("no endpoints", cause="no endpoints", fix="set etcdEndpoints")
        return endpoints[self._first :] + endpoints[: self._first]

    def _pass_over(self, endpoint: str) -> None:
        if self.config.endpoints[self._first] == endpoint:
            self._first = (self._first + 1) % len(self.config.endpoints)

    async def _signed(self, endpoint: str, call: Call, deadline: float) -> Answer:
        """Sign in where needed; once more when etcd does not know the token, which it says before it does anything."""
        token = await self._signed_in(endpoint, deadline)
        try:
            return await self._post(endpoint, call, deadline, token)
        except FailedError as error:
            if (
                self._token == token
            ):  # Whatever it was: a bad token can look like anything, and another sign-in is cheap.
                self._token = None
            if not (error.failure.bad_token and self.config.username):
                raise
        return await self._post(endpoint, call, deadline, await self._signed_in(endpoint, deadline))

    async def _signed_in(self, endpoint: str, deadline: float) -> str:
        if not self.config.username:
            return ""
        if self._token is None:
            call = gateway.sign_in(self.config.username, self._password(endpoint))
            try:
                token = (await self._post(endpoint, call, deadline, "")).reply.get("token", "")
            except FailedError as error:
                if error.failure is not gateway.SIGN_IN_OFF:
                    # Nothing of the operation itself has been sent.
                    raise FailedError(evolve(error.failure, certain=True), endpoint) from error.__cause__
                token = ""
            else:
                if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
                    raise FailedError(evolve(gateway.odd(b"a sign-in without a token"), certain=True), endpoint)
            self._token = token
        return self._token

    def _password(self, endpoint: str) -> str:
        assert self.config.password_file is not None
        try:
            return self.config.password_file.expanduser().read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            failure = Failure(
                cause="password file",
                what=f"etcdPasswordFile={self.config.password_file} cannot be read: {error}",
                fix="name a file that the broker may read, with the password in it",
                certain=True,
                refused=True,
            )
            raise FailedError(failure, endpoint) from error

    async def _post(self, endpoint: str, call: Call, deadline: float, token: str) -> Answer:
        """One request, one reply. Raises FailedError."""
        sent: list[str] = []
        body: bytes | None = None
        with trio.move_on_at(deadline):
            async with self._stream(endpoint, call, deadline, token, sent) as response:
                body = await _read(response)
        if body is None:
            raise FailedError(_late(bool(sent)), endpoint)
        if response.status_code != 200:
            raise FailedError(gateway.failure_of(response.status_code, body), endpoint)
        try:
            return Answer(gateway.parsed(body), endpoint)
        except gateway.OddReplyError as error:
            raise FailedError(gateway.odd(body), endpoint) from error

    @asynccontextmanager
    async def _stream(
        self, endpoint: str, call: Call, deadline: float, token: str, sent: list[str]
    ) -> AsyncIterator[httpx.Response]:
        """A request that is sent, and its response, whose body is not read yet. Raises FailedError."""

        async def trace(event: str, _details: Any) -> None:
            if event.endswith(_STARTED):
                sent.append(event)

        left = max(deadline - trio.current_time(), 0.001)
        timeout = httpx.Timeout(left, connect=min(self.config.dial_timeout_ms / 1000, left))
        body = orjson.dumps(call.body)
        request = self._client.build_request(
            "POST",
            endpoint.rstrip("/") + call.path,
            content=body,
            headers=_HEADERS | ({"Authorization": token} if token else {}),
            timeout=timeout,
            extensions={"trace": trace},
        )
        request.stream = _Body(body)
        try:
            response = await self._client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise FailedError(_failure_of(error, was_sent=bool(sent)), endpoint) from error

    @asynccontextmanager
    async def stream(self, call: Call, silence_max_s: float) -> AsyncIterator[httpx.Response]:
        """A response without end, from the endpoint that is asked first; a longer silence ends it. Raises EtcdError."""
        endpoint = self._in_order()[0]
        try:
            token = await self._signed_in(endpoint, trio.current_time() + self.config.request_timeout_ms / 1000)
            async with self._stream(endpoint, call, trio.current_time() + silence_max_s, token, []) as response:
                if response.status_code != 200:
                    raise FailedError(gateway.failure_of(response.status_code, await _read(response)), endpoint)
                yield response
        except FailedError as error:
            self._token = None
            self._pass_over(endpoint)
            raise error.failure.error(call, endpoint) from error.__cause__


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async with _chunks_of(response) as chunks:
        async for data in chunks:
            body += data
            if len(body) > _BODY_MAX:
                break  # It is not etcd's, and is not taken for that.
    return bytes(body)


@asynccontextmanager
async def lines_of(response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Lines of a response as they come: a line is a message of a stream."""

    async def split() -> AsyncGenerator[bytes, None]:
        rest = b""
        async for data in chunks:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line

    async with _chunks_of(response) as chunks, aclosing(split()) as lines:
        yield lines


@asynccontextmanager
async def _chunks_of(response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Bytes of a response as they come, for as many as are wanted.

    httpx's generators stand inside one another, and closing the outer one leaves the others to the garbage collector, which trio
    warns of. The connection is closed instead, and they end by that.
    """
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        with trio.move_on_after(1, shield=True):
            await response.aclose()
            with suppress(httpx.HTTPError, httpx.StreamError, StopAsyncIteration):
                await anext(chunks)


def _error(call: Call, failed: Sequence[FailedError]) -> EtcdError:
    """The error of an operation that failed at each endpoint that was asked: what may have happened weighs more than a refusal
    there, and that etcd is away more than a refusal by one of its members.
    """
    failed = [each for each in failed if each.is_an_answer] or failed
    errors = [each.failure.error(call, each.endpoint) for each in failed]
    weights = (Unknown, Unavailable, Refused)
    first = next(error for kind in weights for error in errors if isinstance(error, kind))
    others = [f"{error.endpoint} {error.cause}" for error in errors if error is not first]
    first.__cause__ = failed[errors.index(first)].__cause__
    if others:
        first.what += f" (also {', '.join(others)})"
    return first


def _late(was_sent: bool) -> Failure:
    if was_sent:
        return Failure(
            cause="no answer", what="no answer in time", fix="see whether this member of etcd is stopped or slow"
        )
    return Failure(
        cause=NO_CONNECTION, what="no connection in time", fix="see whether it runs and can be reached", certain=True
    )


def _failure_of(error: httpx.HTTPError, *, was_sent: bool) -> Failure:
    """The failure that an exception of httpx proves."""
    if (about := certificate_failure(error, was_sent=was_sent)) is not None:
        return about
    if isinstance(error, httpx.TimeoutException):
        return _late(was_sent)
    text = str(error) or type(error).__name__
    if was_sent:
        return Failure(cause="connection lost", what=f"the connection was lost: {text}")
    if _tls_error(error) is not None:
        return Failure(
            cause="TLS failed",
            what=f"no TLS handshake: {text}",
            fix="write http:// in etcdEndpoints if etcd takes no TLS; else see its log",
            certain=True,
        )
    return Failure(cause=NO_CONNECTION, what=f"no connection: {text}", fix="see whether it runs", certain=True)


def certificate_failure(error: BaseException, *, was_sent: bool) -> Failure | None:
    """The fault of etcd's certificate or ours, where the error is about one of them."""
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return Failure(
            cause="unknown authority",
            what=f"its certificate is not trusted: {tls.verify_message}",
            fix="name the authority that signed it in etcdCaFile; its names have to include the host of the endpoint",
            certain=not was_sent,
            refused=True,
        )
    if tls is not None and any(each in (tls.reason or "") for each in _OUR_CERTIFICATE):
        return Failure(
            cause="client certificate refused",
            what=f"it refuses our certificate: {tls.reason}",
            fix="set etcdCertFile and etcdKeyFile to a client certificate of an authority that etcd trusts",
            certain=True,
            refused=True,
        )
    return None


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    return next((each for each in _causes(error) if isinstance(each, ssl.SSLError)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__


def context_of(config: EtcdConfig) -> ssl.SSLContext | bool:
    """The TLS context; False without TLS. Raises Refused for files that cannot be used."""
    if not config.is_tls:
        return False
    try:
        context = ssl.create_default_context(cafile=str(config.ca_file.expanduser()) if config.ca_file else None)
    except OSError as error:  # SSLError is one.
        raise _bad_file("etcdCaFile", str(config.ca_file), error) from error
    if config.cert_file is not None and config.key_file is not None:
        try:
            # Without a password from here, OpenSSL would ask at the terminal.
            context.load_cert_chain(config.cert_file.expanduser(), config.key_file.expanduser(), password="")
        except OSError as error:
            raise _bad_file("etcdCertFile", f"{config.cert_file}, etcdKeyFile={config.key_file}", error) from error
    return context


def _bad_file(key: str, value: str, error: OSError) -> Refused:
    reason = getattr(error, "reason", None) or error
    return Refused(f"{key}={value}: {reason}", cause="bad file", fix="name PEM files that the broker may read")

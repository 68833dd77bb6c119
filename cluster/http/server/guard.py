"""Checks of every request before the application: Host header, size and pace of the body, number of requests at a time.

The body is read first, whole: hypercorn holds ten pieces of an unread body, then waits without end, even to respond.
"""

from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address

import structlog
import trio
from attrs import define, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinlog.cluster.http.server.responses import HttpError, until_disconnected

log = structlog.get_logger(__name__)

HEADER_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 64 * 1024
BODY_SECONDS_MAX = 5.0
LINGER_SECONDS = 1.0  # So that whoever still sends can read why it was refused.
REQUESTS_MAX = 128
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)


def host_allowed(header: str, allowed: Collection[str]) -> bool:
    """True for a Host header under which this port may be addressed.

    A foreign site whose name resolves to this machine (DNS rebinding) sends that name, which has a dot, like all registered ones.
    So addresses and names without a dot are allowed; others have to be configured. Ports do not matter.
    """
    name = host_name(header)
    if not name:
        return False
    if "*" in allowed or name in {each.lower() for each in allowed}:
        return True
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return "." not in name and ":" not in name
    return True


def host_name(header: str) -> str:
    """The name or address in a Host header; "" where it has none that can be."""
    text = header.strip().lower()
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        return inside if bracket and (not rest or rest.startswith(":")) else ""
    return text.rpartition(":")[0] if text.count(":") == 1 else text


@define(eq=False)
class Guard:
    """An ASGI application round another one."""

    app: ASGIApp
    allow_hosts: tuple[str, ...] = ()
    headers: Iterable[tuple[bytes, bytes]] = HEADERS
    _requests: int = field(default=0, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        if scope["type"] != "http":
            return
        self._requests += 1
        try:
            await self._request(scope, receive, self._with_headers(send))
        finally:
            self._requests -= 1

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _whole_body(scope, receive)
        except HttpError as error:
            await _refuse_and_close(error, scope, receive, send)
            return
        if body is None:
            return  # The peer has left.
        try:
            self._check(scope)
            await self.app(scope, _replayed(body, receive), send)
        except HttpError as error:
            await error.response()(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if self._requests > REQUESTS_MAX:
            raise HttpError(
                status=503,
                what="Too many requests at a time.",
                why=f"This port answers {REQUESTS_MAX} at a time.",
                next_step="Ask again in a moment.",
                headers={"retry-after": "1"},
            )
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES_MAX:
            raise HttpError(
                status=431,
                what="The request's header is too long.",
                why=f"It may have {HEADER_BYTES_MAX} bytes.",
                next_step="Send less.",
            )
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        for host in hosts:  # None with HTTP/1.0, as load balancers check; no browser speaks that.
            if not host_allowed(host, self.allow_hosts):
                raise HttpError(
                    status=403,
                    what=f"This port is not to be addressed as {host_name(host) or 'that'}.",
                    why="The Host header may be an address, a name without a dot, or one of httpAllowHosts.",
                    next_step="Ask for an address, or name the host in httpAllowHosts.",
                )

    def _with_headers(self, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [each for each in self.headers if each[0] not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return sent


async def _whole_body(scope: Scope, receive: Receive) -> bytes | None:
    """Read the whole body; None: the peer has disconnected. Raises HttpError for one that is too long, or too slow."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (len(value) > 10 or (value.isdigit() and int(value) > BODY_BYTES_MAX)):
            raise _too_long()
    body = bytearray()
    with trio.move_on_after(BODY_SECONDS_MAX):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > BODY_BYTES_MAX:
                raise _too_long()
            if not message.get("more_body"):
                return bytes(body)
    raise HttpError(
        status=408,
        what="The request's body did not come.",
        why=f"It has {BODY_SECONDS_MAX:g} s.",
        next_step="Send it at once.",
    )


def _too_long() -> HttpError:
    return HttpError(
        status=413,
        what="The request's body is too long.",
        why=f"It may have {BODY_BYTES_MAX} bytes.",
        next_step="Send less.",
    )


async def _refuse_and_close(error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
    """Respond, wait a moment for the peer to read it, and close without reading the rest."""
    response = error.response()
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    with trio.move_on_after(LINGER_SECONDS):
        await until_disconnected(receive)
    close: Callable[[], None] = scope.get("state", {}).get("close", lambda: None)
    close()
    with trio.move_on_after(LINGER_SECONDS):
        await until_disconnected(receive)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body once, then what comes from the peer: that it leaves."""
    reported = False

    async def replay() -> Message:
        nonlocal reported
        if not reported:
            reported = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay

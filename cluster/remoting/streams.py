"""Streams of bytes that a client's connections use, on trio and on asyncio; both loops' TCP and TLS.

On trio they are trio's own, which anyio would only wrap. On asyncio (and uvloop) they are anyio's.
"""

import os
import ssl
import sys
from collections.abc import Callable
from typing import Any, Protocol, Self

import anyio
import anyio.abc
from attrs import frozen


class Stream(Protocol):
    """The part of trio.abc.Stream that a connection uses. A lost connection raises one of broken()."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return bytes that have come, at least one; none at the end."""

    async def aclose(self) -> None:
        """Close it, TLS with its farewell."""

    async def __aenter__(self) -> Self:
        """For `async with`, which closes it."""

    async def __aexit__(self, *_: Any) -> None: ...


class Event(Protocol):
    """The part of an event that both loops' own have. anyio's wrap them, which takes microseconds of each message."""

    def set(self) -> None:
        """Wake all who wait."""

    async def wait(self) -> object:
        """Wait for it."""


@frozen(eq=False)
class AsyncioStream:
    """A stream of anyio's, as trio's are used."""

    stream: anyio.abc.ByteStream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See Stream."""
        try:
            await self.stream.send(bytes(data))
        except ssl.SSLError as error:
            raise anyio.BrokenResourceError from error

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """See Stream."""
        try:
            return await self.stream.receive(max_bytes or 65536)
        except anyio.EndOfStream:
            return b""
        except ssl.SSLError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """See Stream."""
        await self.stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def on_trio() -> bool:
    """True if trio runs this task."""
    trio: Any = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def current_loop() -> object | None:
    """The loop that runs this task, as an object that all its tasks share. None outside of one."""
    if on_trio():
        import trio

        return trio.lowlevel.current_trio_token()
    asyncio: Any = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def broken() -> tuple[type[Exception], ...]:
    """Errors of a stream whose connection is lost, or that was closed."""
    trio: Any = sys.modules.get("trio")
    ours = anyio.BrokenResourceError, anyio.ClosedResourceError
    return ours if trio is None else (*ours, trio.BrokenResourceError, trio.ClosedResourceError)


def events_of_loop() -> Callable[[], Event]:
    """The class of the running loop's own events."""
    if on_trio():
        import trio

        return trio.Event
    import asyncio  # Brokers, which import this, run on trio.

    return asyncio.Event


def clock_of_loop() -> Callable[[], float]:
    """The clock of the loop that runs, which anyio.current_time asks for each time."""
    if on_trio():
        import trio

        return trio.current_time
    import asyncio

    return asyncio.get_running_loop().time


def writer_of(stream: Stream) -> Callable[[bytes], int] | None:
    """A function that writes what the kernel takes at once, and returns how many bytes that were, while no send_all is under way;
    None for a stream whose bytes have to go through its send_all.
    """
    fileno = _fileno_of(stream)
    if fileno is None:
        return None

    def write(data: bytes) -> int:
        try:
            return os.write(fileno(), data)
        except OSError:  # Also for a lost connection: send_all tells why.
            return 0

    return write


def _fileno_of(stream: Stream) -> Callable[[], int] | None:
    """A function that returns the file descriptor of a TCP stream, -1 after its end; None where there is none to rely on.

    uvloop keeps the number after the end, which is another file's then.
    """
    if isinstance(stream, AsyncioStream):
        from asyncio.trsock import TransportSocket

        raw: object = None
        if isinstance(stream.stream, anyio.abc.SocketStream):  # Not TLS, which has the same attributes.
            raw = stream.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        return raw.fileno if isinstance(raw, TransportSocket) else None
    trio: Any = sys.modules.get("trio")
    if trio is None or not isinstance(stream, trio.SocketStream):
        return None
    fileno: Callable[[], int] = stream.socket.fileno
    return fileno


async def open_tcp(host: str, port: int) -> Stream:
    """Connect. Raises OSError."""
    if on_trio():
        import trio

        return await trio.open_tcp_stream(host, port)
    return AsyncioStream(await anyio.connect_tcp(host, port))


async def open_tls(stream: Stream, host: str, context: ssl.SSLContext) -> Stream:
    """Complete the handshake. Raises one of broken(), whose cause is OpenSSL's error if there is one; closes the stream then.

    Netty ends a connection without close_notify, and waits for none: neither does this.
    """
    try:
        if isinstance(stream, AsyncioStream):
            from anyio.streams.tls import TLSStream  # Half of all that anyio brings.

            try:
                tls = await TLSStream.wrap(
                    stream.stream, server_side=False, hostname=host, ssl_context=context, standard_compatible=False
                )
            except (ssl.SSLError, anyio.EndOfStream) as error:
                raise anyio.BrokenResourceError from (error if isinstance(error, ssl.SSLError) else None)
            return AsyncioStream(tls)
        import trio

        assert isinstance(stream, trio.abc.Stream)
        secure = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
        await secure.do_handshake()
        return secure
    except BaseException:
        await close_now(stream)
        raise


async def close_now(stream: Stream) -> None:
    """Close without a farewell, and without waiting."""
    if isinstance(stream, AsyncioStream):
        await anyio.aclose_forcefully(stream.stream)
        return
    import trio

    assert isinstance(stream, trio.abc.AsyncResource)
    await trio.aclose_forcefully(stream)

"""Contexts of servers and members, kept up to date.

A server's context is made when first needed, so that the start does not wait for it, and again when its files change. With
files it is made at the start, too, to report errors in them. Source: FileWatchService.java (4.9.7).
"""

import ssl
from collections.abc import Callable
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.errors import TlsFilesError
from twinlog.cluster.remoting.tls.config import TlsConfig, TlsMode
from twinlog.cluster.remoting.tls.contexts import client_context, refuse_void, server_context

log = structlog.get_logger(__name__)

_CHECK_SECONDS = 1.0  # Between two checks whether files have changed.

Stamps = tuple[tuple[int, int] | None, ...]


@define(eq=False)
class RenewedContext:
    """A context that is made when first needed, and again once its files have changed."""

    make: Callable[[], ssl.SSLContext]
    files: tuple[Path | None, ...]
    _context: ssl.SSLContext | None = field(default=None, init=False)
    _stamps: Stamps = field(default=(), init=False)
    _checked_at: float = field(default=float("-inf"), init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    async def current(self) -> ssl.SSLContext:
        """The context for a new connection. Raises TlsFilesError; if changed files are unusable, the old context stays."""
        async with self._lock:
            now = trio.current_time()
            if self._context is None or (any(self.files) and now >= self._checked_at + _CHECK_SECONDS):
                self._checked_at = now
                await trio.to_thread.run_sync(self._refresh)
            assert self._context is not None
            return self._context

    def prepare(self) -> None:
        """Make the context now. Raises TlsFilesError."""
        stamps = self._stamps_now()  # Before reading: files that change meanwhile are read again.
        self._context = self.make()
        self._stamps = stamps

    def _refresh(self) -> None:
        if self._context is None:
            self.prepare()
        elif self._stamps != (stamps := self._stamps_now()):
            try:
                self.prepare()
                log.info("changed TLS files in use", files=[str(file) for file in self.files if file])
            except TlsFilesError as error:
                self._stamps = stamps
                log.error("changed TLS files cannot be used; the old certificate stays in use", why=str(error))

    def _stamps_now(self) -> Stamps:
        return tuple(map(_stamp, self.files))


@define(eq=False)
class ServerTls:
    """A server's TLS configuration and its current context."""

    config: TlsConfig = field(factory=TlsConfig)
    _renewed: RenewedContext = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = self.config
        files = () if config.server_test_mode else (config.server_cert, config.server_key, config.server_trust)
        self._renewed = RenewedContext(lambda: server_context(config), files)

    def check(self) -> None:
        """Check the configuration at the start. Raises TlsFilesError for files that cannot be used."""
        if self.config.mode is TlsMode.disabled:
            if self.config.members:
                raise TlsFilesError(
                    "tls.members.enable=true with tls.server.mode=disabled: members with that option ask this one over TLS, too; "
                    "set tls.server.mode=permissive"
                )
            return
        refuse_void(self.config.server_test_mode, self.config.server_files)
        if not (self.config.server_test_mode or self.config.server_cert is not None):
            needy = [f"tls.server.mode={self.config.mode.value}"] if self.config.mode is TlsMode.enforcing else []
            needy += self.config.server_files
            if needy:
                raise TlsFilesError(
                    f"{' and '.join(needy)} without test mode need tls.server.certPath and tls.server.keyPath"
                )
        elif not self.config.server_test_mode:
            self._renewed.prepare()

    async def context(self) -> ssl.SSLContext:
        """See RenewedContext.current()."""
        return await self._renewed.current()


def client_tls(config: TlsConfig) -> RenewedContext:
    """The current context of a client."""
    return RenewedContext(lambda: client_context(config), (config.client_cert, config.client_key, config.client_trust))


def _stamp(file: Path | None) -> tuple[int, int] | None:
    try:
        found = file.expanduser().stat() if file is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino) if found is not None else None

"""IPs of the host names that are used as addresses: looked up in threads of their own, kept, and renewed while they are in use.

A container that comes back under its name with another IP is known by that RENEW_SECONDS later. A look-up that takes long, as
its server is silent, delays nobody but who needs this name for the first time: the loop reads what is kept, and the threads are
not those of the disk.
"""

import socket
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from math import inf
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.names import ip_of, is_ip
from twinlog.store.util.host_name import is_host_name
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

RENEW_SECONDS = 2.0
UNUSED_ROUNDS = 60  # After so many without a question a name is forgotten.
# So long the last IPs of a name count that does not exist any more; a silent server takes none away.
GONE_SECONDS = 60.0
WAIT_SECONDS_MAX = 3.0
NAMES_MAX = 1024
_THREADS_MAX = 32
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


def look_up(host: str) -> tuple[str, ...]:
    """The IPs of a host name, IPv4 first as in RocketMQ. Blocks. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # A label that is empty or too long.
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is no host name") from error
    return tuple(sorted(dict.fromkeys(str(each[4][0]) for each in found), key=lambda ip: ":" in ip))


@define(eq=False)
class Threads:
    """Calls `blocking` in one of a few threads. A call that is cancelled keeps its thread to its end."""

    blocking: Callable[[str], tuple[str, ...]] = look_up
    _limiter: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(_THREADS_MAX), init=False)

    async def __call__(self, host: str) -> tuple[str, ...]:
        return await trio.to_thread.run_sync(self.blocking, host, limiter=self._limiter, abandon_on_cancel=True)


@define(eq=False)
class _Name:
    """The knowledge of a name. Times are of the loop's clock."""

    ips: tuple[str, ...] = ()
    error: str = "it was not looked up yet"  # Of the last look-up; "": none.
    begun_at: float = -inf  # The last look-up.
    found_at: float = -inf
    unused: int = 0  # Rounds without a question.
    looking: bool = False
    done: trio.Event = field(factory=trio.Event)


@define(eq=False)
class HostNames(trio.abc.HostnameResolver):
    """The host names in use. While run() is active, trio's connections resolve by it, too. `on_change`: called when a name has
    other IPs.
    """

    look_up: Callable[[str], Awaitable[tuple[str, ...]]] = field(factory=Threads)
    on_change: list[Callable[[], None]] = field(factory=list, init=False)
    _names: dict[str, _Name] = field(factory=dict, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _asked: Wakeup = field(factory=Wakeup, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew names until cancelled."""
        before = trio.socket.set_custom_hostname_resolver(self)
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                while True:
                    self._round(trio.current_time())
                    with trio.move_on_after(RENEW_SECONDS):
                        await self._asked.wait()
        finally:
            self._nursery = None
            trio.socket.set_custom_hostname_resolver(before)

    def ips(self, host: str) -> tuple[str, ...]:
        """The IPs of a host, of a name as far as they are known now. Never waits."""
        name = self._name(host)
        return (host,) if name is None else name.ips

    def ips_of(self, address: str) -> tuple[str, ...]:
        """The IPs of HOST:PORT."""
        return self.ips(ip_of(address))

    def ip_of(self, address: str) -> str:
        """The IP of HOST:PORT, the first of several; the name itself while none is known."""
        host = ip_of(address)
        return next(iter(self.ips(host)), host)

    def error_of(self, address: str) -> str:
        """Reason why the name in HOST:PORT was not found when it was looked up last; "" when it was."""
        name = self._name(ip_of(address))
        return "" if name is None else name.error

    async def renew(self, *addresses: str, max_age: float = RENEW_SECONDS) -> None:
        """Look up the names in HOST:PORT, but those that were within `max_age`. Takes WAIT_SECONDS_MAX at most."""
        with trio.move_on_after(WAIT_SECONDS_MAX):
            waiting = []
            for host in dict.fromkeys(map(ip_of, addresses)):
                name = self._name(host)
                if name is not None and (name.looking or trio.current_time() - name.begun_at > max_age):
                    self._begin(host, name)
                    waiting.append(name)
            for name in waiting:
                if name.looking:
                    await name.done.wait()

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """See trio.abc.HostnameResolver."""
        name = (host or b"").decode("ascii", "replace")
        await self.renew(f"{name}:0")
        if not (ips := self.ips(name)):
            raise socket.gaierror(socket.EAI_NONAME, self.error_of(f"{name}:0"))
        found = []
        for ip in ips:
            try:
                found += socket.getaddrinfo(ip, port, family, type, proto, flags | socket.AI_NUMERICHOST)
            except socket.gaierror as error:  # Of another family than was asked for.
                if ip == ips[-1] and not found:
                    raise error from None
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        """See trio.abc.HostnameResolver."""
        return await trio.to_thread.run_sync(partial(socket.getnameinfo, sockaddr, flags), abandon_on_cancel=True)

    def _name(self, host: str) -> _Name | None:
        """None for an IP."""
        if is_ip(host):
            return None
        name = self._names.get(host)
        if name is None:
            name = _Name()
            if len(self._names) < NAMES_MAX and is_host_name(host):
                self._names[host] = name
                self._asked.set()
        name.unused = 0
        return name

    def _round(self, now: float) -> None:
        for host, name in list(self._names.items()):
            name.unused += 1
            if name.unused > UNUSED_ROUNDS:
                del self._names[host]
            elif now - name.begun_at >= RENEW_SECONDS:
                self._begin(host, name)

    def _begin(self, host: str, name: _Name) -> None:
        """One look-up of a name at a time, however long it takes."""
        if self._nursery is not None and not name.looking:
            name.looking, name.begun_at, name.done = True, trio.current_time(), trio.Event()
            self._nursery.start_soon(self._look, host, name)

    async def _look(self, host: str, name: _Name) -> None:
        ips, error, is_gone = name.ips, "", False
        try:
            ips = await self.look_up(host)
            name.found_at = trio.current_time()
        except OSError as failed:
            error = failed.strerror or str(failed)
            is_gone = failed.errno in _NO_SUCH_NAME and trio.current_time() - name.found_at > GONE_SECONDS
        finally:
            name.looking = False
            name.done.set()
        if error and not name.error:
            log.warning("host name does not resolve", host=host, why=error, last=name.ips)
        name.error = error
        self._set(host, name, () if is_gone else ips)

    def _set(self, host: str, name: _Name, ips: Collection[str]) -> None:
        if name.ips != ips:
            log.info("host name resolved", host=host, ips=ips, was=name.ips)
            name.ips = tuple(ips)
            for callback in self.on_change:
                callback()

"""Notifications to systemd, for units with Type=notify and WatchdogSec: one datagram for each.

    READY=1         it serves                    WATCHDOG=1   its event loop runs; sent three times in each WatchdogSec
    STATUS=text     what it does, in a line      STOPPING=1   it is stopping
Sources: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
from collections.abc import Callable, MutableMapping

import structlog
import trio
from attrs import define, field

log = structlog.get_logger(__name__)

TICK_SECONDS_MAX = 10.0  # Maximum age of the status line.


@define(eq=False)
class Notifier:
    """`address`: the value of NOTIFY_SOCKET, `@name` for an abstract socket. `watchdog_seconds` None: no watchdog."""

    address: str
    watchdog_seconds: float | None = None
    describe: Callable[[], str] | None = None  # Returns the status line; called in the loop.
    _told: str = field(default="", init=False)
    _failed: bool = field(default=False, init=False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> "Notifier | None":
        """Return None without systemd. Removes the variables, so that children do not notify in the name of this process."""
        address = environment.pop("NOTIFY_SOCKET", "")
        usec, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if address[:1] not in ("/", "@"):
            return None
        is_watched = usec.isdigit() and int(usec) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(usec) / 1e6 if is_watched else None)

    def ready(self, words: str, describe: Callable[[], str] | None = None) -> None:
        """Report that it serves; `describe` returns the status line from then on."""
        self.describe = describe
        self._told = words
        self._say("READY=1", f"STATUS={words}")

    def stopping(self) -> None:
        """Report that it is stopping; the watchdog continues until it has stopped."""
        self.describe = None
        self._say("STOPPING=1", "STATUS=stopping")

    async def keep_alive(self) -> None:
        """Send WATCHDOG=1 and new status lines. Run it in the watched loop: it is silent while the loop is blocked."""
        pause = min(TICK_SECONDS_MAX, (self.watchdog_seconds or 3 * TICK_SECONDS_MAX) / 3)
        while True:
            said = ["WATCHDOG=1"] if self.watchdog_seconds else []
            if (words := self._status()) != self._told:
                self._told = words
                said.append(f"STATUS={words}")
            if said:
                self._say(*said)
            await trio.sleep(pause)

    def _status(self) -> str:
        """Return the status line, or the last one after an error, which must not end the service."""
        try:
            return self.describe() if self.describe is not None else self._told
        except Exception:
            log.exception("no more status for systemd")
            self.describe = None
            return self._told

    def _say(self, *lines: str) -> None:
        """Send without waiting: a datagram that does not fit is lost."""
        path = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(text.encode(), path)
        except OSError as error:
            if not self._failed:
                log.warning("systemd does not hear this process", socket=self.address, error=str(error))
            self._failed = True

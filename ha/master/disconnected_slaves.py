"""Keeps twinlog/replicas, and the soft retention floor of disconnected slaves; see ha/policy/disconnected.py."""

import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.ha.policy.disconnected import EVERYBODY, Ack, KnownSlave, KnownSlaves, decode_slaves, encode_slaves
from twinlog.store.util.sync import write_durably

log = structlog.get_logger()

SAVE_SECONDS = 5.0


@define(eq=False, kw_only=True)
class DisconnectedSlaves:
    """`acks`: name and acknowledged offset of each slave that is connected now."""

    path: Path
    acks: Callable[[], Mapping[Hashable, Ack]]
    max_offset: Callable[[], int]
    bytes_max: int  # haRetentionMaxBytes; 0: nothing is kept for them.
    registered_with: Callable[[str], int] = lambda _ip: EVERYBODY  # How many slaves are registered with an IP.
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    slaves: KnownSlaves = field(factory=KnownSlaves, init=False)
    _logged: set[KnownSlave] = field(factory=set, init=False)  # Those past the limit.
    _changed: bool = field(default=False, init=False)
    _cannot_save: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Note the connected slaves every few seconds, until cancelled."""
        await trio.to_thread.run_sync(self.load)
        while True:
            await trio.sleep(SAVE_SECONDS)
            self.look()
            if self._changed:
                self._changed = False
                await trio.to_thread.run_sync(self._save, encode_slaves(self.slaves, self.now_ms()))

    def load(self) -> None:
        """Load the slaves that were known before this start."""
        try:
            found = decode_slaves(self.path.read_bytes())
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("disconnected slaves unknown: the file cannot be read", path=str(self.path), error=str(error))
            return
        if found is None:
            log.warning("disconnected slaves unknown: the file cannot be used", path=str(self.path))
        else:
            self.slaves.away[:0] = found.away

    def _save(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self.path, data)
            self._cannot_save = False
        except OSError as error:
            if not self._cannot_save:
                log.warning("saving known slaves failed; retrying", path=str(self.path), error=str(error))
            self._cannot_save = True

    def look(self) -> None:
        """Take the slaves that are connected now."""
        if self.slaves.update(self.acks(), self.now_ms(), self.registered_with):
            self._changed = True
        for slave in self.slaves.away:
            is_past_limit = 0 < self.bytes_max < self.max_offset() - slave.offset
            if not slave.given_up and slave not in self._logged and is_past_limit:
                self._logged.add(slave)
                log.warning(
                    "disconnected slave lacks more than haRetentionMaxBytes: the log is no longer kept for it",
                    slave=slave.ip,
                    has_bytes_below=slave.offset,
                    away_since=moment(slave.away_since),
                    haRetentionMaxBytes=self.bytes_max,
                )
        self._logged.intersection_update(self.slaves.away)

    def floor(self) -> int:
        """The lowest byte that a disconnected slave may still need."""
        self.look()
        return self.slaves.floor(self.max_offset(), self.bytes_max)

    def shortened(self, min_offset: int) -> None:
        """Retention deleted a file: the log begins at this byte now."""
        self.look()
        for slave in self.slaves.shortened(min_offset):
            self._changed = True
            log.error(
                "disconnected slave needs a full copy: bytes that it lacks were deleted",
                slave=slave.ip,
                lacks_from=slave.offset,
                log_begins_at=min_offset,
                away_since=moment(slave.away_since),
            )

    def held_by(self) -> KnownSlave | None:
        """The slave, connected or not, that needs the oldest bytes of the log; None: there is none."""
        self.look()
        away = self.slaves.lowest(self.max_offset(), self.bytes_max)
        found = [*self.slaves.connected.values(), *([away] if away is not None else [])]
        return min(found, key=lambda slave: slave.offset, default=None)


def moment(milliseconds: int) -> str:
    """A time as ISO 8601 text, UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")

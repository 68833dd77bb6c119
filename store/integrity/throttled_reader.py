"""What the scrub's threads read the log with: slowly, and past what the disk does not read."""

import errno
import time

from attrs import define, field

from twinlog.store.log.range import LogRange

_PAGE = 4096
SLICE_SECONDS = 0.001
SHARE = 5  # A thread takes one part in so many of a core.


@define(eq=False)
class PatientReader:
    """Reads what can be read: pages that the disk refuses are zeros, and noted."""

    bytes_: LogRange
    _unreadable: list[tuple[int, OSError]] = field(factory=list, init=False)

    def read(self, offset: int, size: int) -> bytes:
        """As LogRange.read(). Raises OSError unless it is the disk's I/O error."""
        try:
            return self.bytes_.read(offset, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        pieces, end = [], min(offset + size, self.bytes_.end)
        while offset < end:
            part = min(end, offset - offset % _PAGE + _PAGE) - offset
            try:
                pieces.append(self.bytes_.read(offset, part))
            except OSError as error:
                self._unreadable.append((offset, error))
                pieces.append(bytes(part))
            offset += part
        return b"".join(pieces)

    def unreadable_in(self, start: int, end: int) -> str:
        """What the disk said about the first page there that it did not read; empty when it read all."""
        return next((f"{error} at {offset}" for offset, error in self._unreadable if start <= offset < end), "")


@define(eq=False)
class Pace:
    """Lets a thread sleep so much that it keeps to its share of a core."""

    _began: float = field(factory=time.monotonic, init=False)

    def rest(self) -> None:
        """Call it after each step."""
        busy = time.monotonic() - self._began
        if busy >= SLICE_SECONDS:
            time.sleep(busy * (SHARE - 1))
            self._began = time.monotonic()

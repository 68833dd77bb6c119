"""Pure parts of pushing the log: its start offset, flow control, and the age of what a slave lacks.

Start offset: RocketMQ sends an empty slave its last file only, streams from any position that it is asked for, and sends only
heartbeats, for ever, to a slave that asks for something it lacks. Source: HAConnection.WriteSocketService.

Flow control: a token bucket, one token for each byte. RocketMQ 5.3.3 counts only frame headers and, once these are used up, sends
empty frames without a pause (FlowMonitor, DefaultHAConnection). Here every byte counts, and an empty bucket waits.

Age: records of the log have no common clock, so its end is stamped now and then: at this monotonic time the log ended there.
Stamps are kept at several levels of detail, each half as dense as the one before and twice as long: ages from parts of a second
to many days are exact to about a hundredth, and memory is bounded.
"""

from bisect import bisect_right
from collections import deque
from operator import itemgetter

from attrs import define, field

from twinlog.ha.errors import HARefusedError


def push_start(requested: int, min_offset: int, max_offset: int, file_size: int) -> int:
    """Return the log offset to send from; all bytes from there on can be sent.

    `requested` is the first report, the end of the slave's log. 0 is an empty slave, which gets the whole log,
    beginning with the first file. A position inside a record is normal: a RocketMQ slave takes pieces of records.
    Raises HARefusedError for a place that this log does not have, with the cause bad_request, over_max or below_min.
    """
    if requested < 0:
        raise HARefusedError("bad_request", f"a request for offset {requested}")
    if requested > max_offset:
        raise HARefusedError(
            "over_max",
            f"a request for offset {requested} while this log ends at {max_offset}: "
            f"that slave holds {requested - max_offset} bytes that this master lacks",
        )
    if requested == 0:
        return min_offset - min_offset % file_size
    if requested < min_offset:
        raise HARefusedError(
            "below_min",
            f"a request for offset {requested} while this log begins at {min_offset}: "
            "the bytes between were deleted here, that slave needs an empty log",
        )
    return requested


BURST_SECONDS = 0.02  # What may be sent at once, as a part of what may be sent in a second.
BURST_MIN = 256  # Bytes. A frame's header must not be most of it.


@define
class FlowControl:
    """A bucket that gets `bytes_per_second` tokens and holds those of twice BURST_SECONDS, so that a late wake-up loses none.

    It may owe some: a heartbeat is sent in any case, and paid for later.
    """

    bytes_per_second: int
    _tokens: float = field(init=False)
    _filled_at: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens = self._burst

    @property
    def _burst(self) -> int:
        return max(BURST_MIN, int(self.bytes_per_second * BURST_SECONDS))

    @property
    def frame_min(self) -> int:
        """A body smaller than this is not worth a frame while there is more to send: wait. Bytes."""
        return self._burst // 2

    def allowed(self, now: float) -> int:
        """Number of bytes that may be sent now, at least 0."""
        if self._filled_at is not None:
            self._tokens = min(2 * self._burst, self._tokens + (now - self._filled_at) * self.bytes_per_second)
        self._filled_at = now
        return max(int(self._tokens), 0)

    def sent(self, size: int) -> None:
        """Note that so many bytes were sent, or will be by the next call of allowed()."""
        self._tokens -= size

    def seconds_until_burst(self) -> float:
        """Seconds to wait, after allowed(), before sending again: few large frames are better than many small ones."""
        return max((self._burst + 1 - self._tokens) / self.bytes_per_second, 0.0)


LEVELS, STAMPS = 22, 256
INTERVAL = 0.1  # Seconds between two stamps of the first level, at least.


def _levels() -> list[deque[tuple[int, float]]]:
    return [deque(maxlen=STAMPS) for _ in range(LEVELS)]


@define(eq=False)
class AppendStamps:
    """Stamps of the log's end over time."""

    _levels: list[deque[tuple[int, float]]] = field(factory=_levels, init=False)

    def note(self, max_offset: int, now: float) -> None:
        """The log ends at `max_offset` now. Costs little when there is nothing new, or when it is called too often."""
        interval = INTERVAL
        for level in self._levels:
            if level and (level[-1][0] >= max_offset or now < level[-1][1] + interval):
                break
            level.append((max_offset, now))
            interval *= 2

    def age(self, ack_offset: int, max_offset: int, now: float) -> float | None:
        """Seconds since the byte at `ack_offset` was appended; 0 if there is none, None if it is older than all stamps."""
        if ack_offset >= max_offset:
            return 0.0
        for level in self._levels:
            if level and level[0][0] <= ack_offset:
                at = bisect_right(level, ack_offset, key=itemgetter(0))  # The first stamp that has the byte.
                return now - level[at][1] if at < len(level) else 0.0  # Too young to be stamped.
        return None

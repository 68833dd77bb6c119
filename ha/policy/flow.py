"""How many bytes a slave may be sent now. Pure: a bucket of tokens, one for each byte, told what time it is.

RocketMQ 5.3.3 counts the frame headers only and, once those are used up, sends empty frames without a pause (FlowMonitor,
DefaultHAConnection). Here every byte counts, and who has none left waits.
"""

from attrs import define, field

BURST_SECONDS = 0.02  # What may be sent at once, as a part of what may be sent in a second.
BURST_MIN = 256  # Bytes. A frame's header must not be most of it.


@define
class FlowControl:
    """A bucket that gets `bytes_per_second` tokens and holds those of twice BURST_SECONDS, so that who wakes late loses none.

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
        """How many bytes may be sent now; not below 0."""
        if self._filled_at is not None:
            self._tokens = min(2 * self._burst, self._tokens + (now - self._filled_at) * self.bytes_per_second)
        self._filled_at = now
        return max(int(self._tokens), 0)

    def sent(self, size: int) -> None:
        """So many bytes were sent, or will be by the time of the next look."""
        self._tokens -= size

    def seconds_until_burst(self) -> float:
        """How long to wait, from the last look on, before sending again: few large frames are better than many small ones."""
        return max((self._burst + 1 - self._tokens) / self.bytes_per_second, 0.0)

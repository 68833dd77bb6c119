"""The last bytes of a slave's log, asked for again and compared before anything is appended behind them. Pure.

The classic stream says nothing about contents, but a master streams from any byte that is requested: a slave that requests a
little less than it has sees whether the end of its log is the master's. That needs no answer from the remoting port. A record
contains its offset and time: logs that diverged stay different, so a few records at the end prove as much as many.
"""

from attrs import define, field

from twinlog.ha.errors import HADivergedError

OVERLAP_MAX = 64 * 1024  # Bytes, but one record at least.
SHRINK = 8  # So much less is asked for after a connection that broke before anything new came: some break soon.


@define(eq=False)
class Overlap:
    """`own` lies at `start` of the log, a record's start, and goes up to its end."""

    start: int
    own: bytes
    at: int = field(init=False)  # All below was compared.

    def __attrs_post_init__(self) -> None:
        assert self.start > 0, "a request for 0 is one for the master's last file"
        self.at = self.start

    @property
    def end(self) -> int:
        """The end of the slave's log."""
        return self.start + len(self.own)

    @property
    def compared(self) -> int:
        """Number of bytes that were equal so far."""
        return self.at - self.start

    @property
    def is_done(self) -> bool:
        """True if all of it was equal."""
        return self.at == self.end

    def compare(self, data: memoryview) -> int:
        """Compare bytes that arrived, at `at`. Returns how many of them were compared: the rest is new.

        Raises HADivergedError with the offset of the first byte that differs.
        """
        position = self.at - self.start
        size = min(len(data), len(self.own) - position)
        own = memoryview(self.own)[position : position + size]
        if own != data[:size]:
            raise HADivergedError(self.at + _first_difference(bytes(own), bytes(data[:size])))
        self.at += size
        return size


def _first_difference(left: bytes, right: bytes) -> int:
    low, high = 0, len(left)  # left[:low] is equal, left[:high] is not.
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle)
    return low

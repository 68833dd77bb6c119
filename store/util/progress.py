"""Progress of long operations: reported in bytes, for people to see."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # Bytes done, bytes in all.


def no_progress(_done: int, _total: int) -> None:
    """Reports nothing."""

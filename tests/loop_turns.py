"""Turns of trio's loop: in each of them, every task that can go on does."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from attrs import define


@define(eq=False)
class LoopTurns(trio.abc.Instrument):
    """Counts them. What a task counts of its own steps depends on the order in which trio lets tasks go on."""

    count: int = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1

    @classmethod
    @contextmanager
    def counted(cls) -> Iterator["LoopTurns"]:
        """As long as the block lasts."""
        turns = cls()
        trio.lowlevel.add_instrument(turns)
        try:
            yield turns
        finally:
            trio.lowlevel.remove_instrument(turns)

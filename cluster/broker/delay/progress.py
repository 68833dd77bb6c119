"""How far the levels of delay are delivered, as far as the log is safe. Pure."""

from collections import deque
from typing import NamedTuple

from attrs import define, field


class _Step(NamedTuple):
    end_offset: int  # Of the delivered message, bytes.
    level: int
    position: int


@define
class Progress:
    """The next queue offset of each level, moved on only when the log is safe up to the messages that were delivered."""

    table: dict[int, int] = field(factory=dict)
    steps_max: int = 1024
    _steps: deque[_Step] = field(factory=deque, init=False)

    def add(self, end_offset: int, level: int, position: int) -> None:
        """Level has been delivered up to `position`; the last message ends at `end_offset` of the log, 0: there was none."""
        if self._steps:  # What was delivered before must be safe, too, also where later messages were passed over.
            end_offset = max(end_offset, self._steps[-1].end_offset)
        if (
            len(self._steps) >= self.steps_max
        ):  # Nothing is confirmed for long: the last step of each level says enough.
            last = {step.level: step for step in self._steps}
            self._steps = deque(sorted(last.values()))
        self._steps.append(_Step(end_offset, level, position))

    def advance(self, safe_offset: int) -> None:
        """The log is safe up to here."""
        while self._steps and self._steps[0].end_offset <= safe_offset:
            _, level, position = self._steps.popleft()
            self.table[level] = position

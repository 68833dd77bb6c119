"""Tasks that wait for a batch. One at a time is woken, and wakes the next one if there is more than it takes itself.

Were all woken for each arrival, a consumer's twenty workers would run for a single message.
"""

from collections import deque
from collections.abc import Callable

from attrs import define, field

from twinlog.cluster.remoting.streams import Event


@define(eq=False)
class WaitingTasks:
    """A line of tasks; the one that has waited longest is woken first."""

    _line: deque[Event] = field(factory=deque, init=False)
    _is_one_coming: bool = field(default=False, init=False)  # It was woken, and has not run yet.

    def wake_one(self) -> None:
        """Let one come, unless one is coming already: it wakes the next itself."""
        if self._line and not self._is_one_coming:
            self._is_one_coming = True
            self._line.popleft().set()

    def wake_all(self) -> None:
        """Let all come: there will be nothing more to wait for."""
        while self._line:
            self._line.popleft().set()

    async def wait(self, new_event: Callable[[], Event]) -> None:
        """Wait to be woken. One that is cancelled on its way wakes another in its place."""
        event = new_event()
        self._line.append(event)
        try:
            await event.wait()
        except BaseException:
            if event in self._line:
                self._line.remove(event)
            else:
                self._is_one_coming = False
                self.wake_one()
            raise
        self._is_one_coming = False

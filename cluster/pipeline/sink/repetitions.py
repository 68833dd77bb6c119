"""Drops the rows of a queue whose id came before: the reader's option dropRepetitions. Pure.

A row is dropped exactly if its queue has a row of the same id at most `look_back` offsets before it, and not before the query's
first offset there. So whether it is dropped does not depend on how the query is cut into batches and tasks; the first row of an
id within the query is never dropped, and a row that has no id is not either. See ids.py: rows of one id have equal content.
"""

from collections.abc import Sequence

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

LOOK_BACK = 10_000  # Offsets of a queue.
_ROOM = 65_536  # Ids that are kept beyond the look back, before old ones are forgotten.


def first_needed(start: int, look_back: int, floor: int) -> int:
    """Offset from which rows have to be passed to Repetitions, so that those from `start` on can be judged."""
    return min(start, max(floor, start - look_back))


@define(eq=False)
class Repetitions:
    """Ids of one queue in a window of offsets. Pass all its rows from first_needed() on, in order."""

    look_back: int = LOOK_BACK
    _last: dict[str, int] = field(factory=dict, init=False)  # Last offset of each id.

    def are_new(self, offsets: Sequence[int], ids: Sequence[str | None]) -> NDArray[np.bool_]:
        """Flags of the next rows: true for those that are no repetitions. `ids`: None for a row without one."""
        last, look_back = self._last, self.look_back
        new = np.ones(len(offsets), np.bool_)
        for row, (offset, row_id) in enumerate(zip(offsets, ids, strict=True)):
            if row_id is not None:
                before = last.get(row_id)
                if before is not None and offset - before <= look_back:
                    new[row] = False
                last[row_id] = offset
        if len(last) > look_back + _ROOM and len(offsets):
            oldest = offsets[-1] - look_back
            self._last = {row_id: offset for row_id, offset in last.items() if offset >= oldest}
        return new

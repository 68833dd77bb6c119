"""The id of a row, which the row has again when its task, or its batch, is repeated. Pure.

    SPARK_ROW_ID = QUERY/BATCH/PARTITION/ROW

QUERY is 16 hex digits of the streaming query's id, or the id of a batch write; BATCH and PARTITION are Spark's numbers. ROW is
the first 96 bits of the xxh3-128 of what is sent (topic, flag, delay, properties and body) as hex and, of equal rows of a
partition, which one it is: nothing for the first, -1 for the second.

ROW is no row number: Spark may give a repeated task its rows in another order, as after a shuffle. Then another row would have
the number of one that was sent before, and a reader that drops what has an id that came before would lose it. Rows with equal
ids have equal content.
"""

from collections.abc import Sequence

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

PROPERTY = "SPARK_ROW_ID"
DIGEST_SIZE = 16  # Bytes of xxh3-128.
_QUERY_DIGITS, _ROW_DIGITS = 16, 24

Keys = NDArray[np.uint64]


def short_id(text: str) -> str:
    """The part QUERY of a query's id, a UUID."""
    return text.replace("-", "")[:_QUERY_DIGITS]


@define(eq=False)
class Occurrences:
    """Counts how often each number came before. Takes 8 bytes for each number, in sorted runs that are merged as they grow."""

    _runs: list[Keys] = field(factory=list, init=False)

    def before(self, keys: Keys) -> NDArray[np.int64]:
        """Count of earlier ones for each of these, here and in earlier calls."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        first = np.searchsorted(ordered, ordered)
        counts = np.arange(len(ordered)) - first
        for run in self._runs:
            at = np.searchsorted(run, ordered)
            met = np.flatnonzero(run[np.minimum(at, len(run) - 1)] == ordered)
            counts[met] += np.searchsorted(run, ordered[met], side="right") - at[met]
        self._add(ordered)
        found = np.empty(len(keys), np.int64)
        found[order] = counts
        return found

    def _add(self, ordered: Keys) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(ordered):
            ordered = np.sort(np.concatenate((self._runs.pop(), ordered)), kind="stable")
        if len(ordered):
            self._runs.append(ordered)


@define(eq=False)
class RowIds:
    """Ids of the rows of one task, which get them in any order."""

    query: str
    batch: int
    partition: int
    _prefix: str = field(init=False)
    _occurrences: Occurrences = field(factory=Occurrences, init=False)

    def __attrs_post_init__(self) -> None:
        self._prefix = f"{self.query}/{self.batch}/{self.partition}/"

    def of(self, digests: Sequence[bytes]) -> list[str]:
        """Ids of rows with these digests, of 16 bytes each."""
        joined = b"".join(digests)
        before = self._occurrences.before(np.frombuffer(joined, "<u8")[::2])
        digits, prefix = joined.hex(), self._prefix
        step = 2 * DIGEST_SIZE
        ids = [prefix + digits[at : at + _ROW_DIGITS] for at in range(0, len(digits), step)]
        for row in np.flatnonzero(before).tolist():
            ids[row] += f"-{before[row]}"
        return ids

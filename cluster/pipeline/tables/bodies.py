"""Inflates bodies that a client compressed, within bounds. No I/O.

The record's sys flag says whether and how a body is compressed: zlib, LZ4 frames or zstd. A few bytes may inflate to any size, so
both the size and the ratio are bounded. Source: MessageSysFlag, CompressionType; RocketMQ 5.3.3.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow
from attrs import frozen

from twinlog.store.record.compression import COMPRESSED, CompressionError, TooLongError, decompress

_TOGETHER = 32 << 20  # Bytes of inflated bodies in one batch.


@frozen(kw_only=True)
class InflateLimits:
    """Limits of an inflated body: bytes, and ratio to the stored bytes.

    Up to `free` bytes any ratio is allowed: clients send no larger bodies by default (maxMessageSize), and these may be all
    zeros.
    """

    size_max: int = 64 << 20
    ratio_max: int = 200
    free: int = 4 << 20

    def limit(self, stored: int) -> int:
        """Limit in bytes for a stored body of a given size."""
        return min(self.size_max, max(stored * self.ratio_max, self.free))


def inflate(body: bytes, sys_flag: int, bounds: InflateLimits) -> bytes:
    """Body of a record as the producer sent it. Raises CompressionError: then keep it as it is stored."""
    limit = bounds.limit(len(body))
    try:
        return decompress(body, sys_flag, size_max=limit)
    except TooLongError as error:
        raise CompressionError(
            f"{len(body)} bytes inflate to more than {limit}: at most {bounds.size_max} bytes and "
            f"{bounds.ratio_max} times as many are taken"
        ) from error


def inflated_batches(batch: pyarrow.RecordBatch, bounds: InflateLimits) -> Iterator[pyarrow.RecordBatch]:
    """Rows with `body` as the producer sent it; `body_problem` has the reason where that is impossible.

    Several batches if the inflated bodies would take much memory together.
    """
    flags = np.asarray(batch.column("sys_flag"))
    if not (flags & COMPRESSED).any():
        yield batch.append_column("body_problem", pyarrow.nulls(batch.num_rows, pyarrow.string()))
        return
    position, start = batch.schema.get_field_index("body"), 0
    while start < batch.num_rows:
        bodies, problems = _inflated(batch.column(position), flags.tolist(), start, bounds)
        part = batch.slice(start, len(bodies))
        part = part.set_column(position, batch.schema.field(position), pyarrow.array(bodies, pyarrow.binary()))
        yield part.append_column("body_problem", pyarrow.array(problems, pyarrow.string()))
        start += len(bodies)


def _inflated(
    stored: pyarrow.Array, flags: list[int], start: int, bounds: InflateLimits
) -> tuple[list[bytes], list[str | None]]:
    """Bodies from row `start` on, as many as fit into memory together, and the problem of each."""
    bodies: list[bytes] = []
    problems: list[str | None] = []
    size = 0
    while start + len(bodies) < len(flags) and size < _TOGETHER:
        row = start + len(bodies)
        body, problem = stored[row].as_py(), None
        try:
            body = inflate(body, flags[row], bounds)
        except CompressionError as error:
            problem = str(error)
        bodies.append(body)
        problems.append(problem)
        size += len(body)
    return bodies, problems

"""Bodies as producers gave them: what a client compressed is inflated, within bounds. No I/O.

The record's sys flag says that a body is compressed, and how: zlib, LZ4 frames or zstd. A few bytes may inflate to any number, so
two bounds hold at once, one of size and one of the ratio. Source: MessageSysFlag, CompressionType; RocketMQ 5.3.3.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow
from attrs import frozen

from twinlog.store.record.compression import COMPRESSED, CompressionError, TooLongError, decompress

_TOGETHER = 32 << 20  # Bytes of inflated bodies that are handed over together.


@frozen(kw_only=True)
class InflateLimits:
    """Of what a body may inflate to: bytes, and how many times as many as are stored.

    Up to `free` bytes any ratio is taken: clients send no larger bodies by default (maxMessageSize), and these may well be zeros.
    """

    size_max: int = 64 << 20
    ratio_max: int = 200
    free: int = 4 << 20

    def limit(self, stored: int) -> int:
        """In bytes, for a body of which so many are stored."""
        return min(self.size_max, max(stored * self.ratio_max, self.free))


class BodyError(Exception):
    """The body cannot be inflated, or should not be. Keep it as it is stored; the message says why."""


def inflate(body: bytes, sys_flag: int, bounds: InflateLimits) -> bytes:
    """The body of a record as its producer gave it. Raises BodyError."""
    limit = bounds.limit(len(body))
    try:
        return decompress(body, sys_flag, size_max=limit)
    except TooLongError as error:
        raise BodyError(
            f"{len(body)} bytes inflate to more than {limit}: at most {bounds.size_max} bytes and "
            f"{bounds.ratio_max} times as many are taken"
        ) from error
    except CompressionError as error:
        raise BodyError(str(error)) from error


def inflated_batches(batch: pyarrow.RecordBatch, bounds: InflateLimits) -> Iterator[pyarrow.RecordBatch]:
    """The same rows, whose `body` is what the producer gave, and `body_problem` says where that cannot be had.

    In several batches where inflated bodies would take much memory together.
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
    """The bodies from row `start` on, as many as may be held together, and what is wrong with each."""
    bodies: list[bytes] = []
    problems: list[str | None] = []
    size = 0
    while start + len(bodies) < len(flags) and size < _TOGETHER:
        row = start + len(bodies)
        body, problem = stored[row].as_py(), None
        try:
            body = inflate(body, flags[row], bounds)
        except BodyError as error:
            problem = str(error)
        bodies.append(body)
        problems.append(problem)
        size += len(body)
    return bodies, problems

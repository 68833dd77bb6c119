"""Which parts of several logs differ, told from the digests of their blocks. Pure: values in, values out.

A block is 64 KiB of the endless log, counted from offset 0 (store/digest.py). Where the logs begin and end may differ, and the
first and the last block of a log may be partial.
"""

from typing import NamedTuple

from attrs import field, frozen

from store.epoch_file import EpochEntry


class BlockRow(NamedTuple):
    """Bytes `start` to `end` of a log, inside one block: a row of the BLOCKS table.

    `digest`: xxh3-128 of these bytes, as they were read; `first_record` is -1 where no record begins in them.
    """

    start: int
    end: int
    digest: bytes
    records: int = 0
    first_record: int = -1


@frozen
class Side:
    """One of the logs. It has bytes `first` to `last`; up to `confirmed` it has them for good (None: not known).

    `claimed`: how far the log went at some time, as its own files say (queues, digests, a clean stop); None: nothing is known.
    """

    name: str
    first: int
    last: int
    confirmed: int | None = None
    epochs: tuple[EpochEntry, ...] = ()
    file_size: int = 1 << 30
    is_running: bool = False
    claimed: int | None = field(default=None, kw_only=True)

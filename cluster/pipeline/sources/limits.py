"""Limits of reading a store, and the offset where a following reader continues. Pure: an inspection in, an offset out.

| the store | is read |
| --- | --- |
| stopped, archived, copied | to the end of its sound records: nobody writes or cuts it now |
| running, confirmed offset known | to the confirmed offset: bytes behind it may be cut by a role change |
| running, confirmed offset unknown | not at all; with `unconfirmed`, to the end of its sound records |

A running twinlog broker reports the current confirmed offset (option `broker`). Its files have that of its last role change;
RocketMQ 5 writes each second how much it shows to consumers, RocketMQ 4 nothing.
"""

from collections.abc import Sequence

from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.ha.election.epochs import epoch_at
from twinlog.store.epoch_file import FIRST

UNKNOWN = -1  # Stands for an epoch.


class ReadRefusedError(Exception):
    """The store could be read, but not in the requested way. The message has cause, reason and next step."""


def readable_end(files: StoreFiles, *, unconfirmed: bool, reported: int | None = None) -> int:
    """End of the bytes to read; `reported`: the confirmed offset that the broker reported. Raises ReadRefusedError."""
    if unconfirmed or not files.is_running:
        return files.end
    confirmed = files.confirmed if reported is None else reported
    if confirmed is None:
        raise ReadRefusedError(
            f"{files.uri.shown}: a broker has this store open, and the confirmed offset of its log is unknown: bytes behind it "
            "may be cut by a role change. Name the broker if it is twinlog's (option broker=HOST:PORT), or read all sound "
            "records (option unconfirmed=true), or read a stopped store or a backup."
        )
    return max(files.first, min(confirmed, files.end))


def may_be_old(files: StoreFiles, *, unconfirmed: bool, reported: int | None = None) -> str | None:
    """A warning if fewer bytes are read than may be confirmed; else None."""
    if unconfirmed or reported is not None or not files.is_running or files.confirmed in (None, files.end):
        return None
    return (
        f"{files.uri.shown}: a broker has this store open, and its files report the log as confirmed up to {files.confirmed}; by "
        f"now it may be confirmed up to {files.end}. A twinlog broker reports it when named: option broker=HOST:PORT."
    )


def epoch_before(files: StoreFiles, offset: int) -> int:
    """Epoch of the byte before an offset; UNKNOWN without a history, as in RocketMQ's stores."""
    entries = files.epochs
    is_known = entries != (FIRST,) and files.first < offset and entries[0].start_offset < offset
    return epoch_at(entries, offset - 1).epoch if is_known else UNKNOWN


def start_of(files: StoreFiles, start: int, *, epoch: int = UNKNOWN, fail_on_data_loss: bool = True) -> int:
    """Offset where a reader continues that has read up to `start`, whose last byte had `epoch` then. Raises ReadRefusedError.

    The confirmed offset may fall when slaves leave, so a reader may be ahead of it; it cannot be ahead of the log.
    """
    if start < files.first:
        if not fail_on_data_loss:
            return files.first
        raise ReadRefusedError(
            f"{files.uri.shown}: bytes {start} to {files.first} are gone: retention removed them before they were read, and the "
            f"log begins at {files.first} now. To continue without them, set option failOnDataLoss=false. To get them, read a "
            "backup that has them, with a separate checkpoint. To prevent it, let the broker keep files longer "
            "(fileReservedTime)."
        )
    if start > files.end:
        raise ReadRefusedError(
            f"{files.uri.shown}: it was read up to {start}, and the log ends at {files.end}: it was cut, or this is another "
            "store. Records read behind its end are no longer part of it; `twinlog log info` lists cuts. Start again with an "
            "empty checkpoint and an empty destination."
        )
    now = epoch_before(files, start)
    if UNKNOWN not in (epoch, now) and epoch != now:
        raise ReadRefusedError(
            f"{files.uri.shown}: it was read up to {start}, which was of epoch {epoch} then, and is of epoch {now} now: a role "
            "change cut the log, and it was written again. Some of the records read were not confirmed, and are no longer part "
            "of it. Start again with an empty checkpoint and an empty destination."
        )
    return start


def batch_ends(starts: Sequence[int], ends: Sequence[int], size_max: int | None) -> list[int]:
    """End of the next batch in each log: `size_max` bytes over all of them, None for no limit.

    Logs get equal shares; what one does not need goes to the others. An end can be any byte that is not before its start.
    """
    found = [max(start, end) for start, end in zip(starts, ends, strict=True)]
    if size_max is None:
        return found
    left = size_max
    order = sorted(range(len(starts)), key=lambda number: found[number] - starts[number])
    for place, number in enumerate(order):
        share = -(-left // (len(order) - place))
        found[number] = min(found[number], starts[number] + share)
        left -= found[number] - starts[number]
    return found

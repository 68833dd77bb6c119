"""Up to where a store may be read, and where a reader that follows it goes on. Pure: a picture of the store in, an offset out.

| the store | is read |
| --- | --- |
| stopped, in an archive, a copy | to the end of its sound records: nobody writes there, nobody cuts there now |
| running, what is confirmed is known | to there: what lies behind may be cut when roles change |
| running, what is confirmed is not known | not at all; with `unconfirmed`, to the end of its sound records |

A running broker tells what is confirmed when it is asked (option `broker`), if it is one of twinlog's. What its files say of that
is as old as the last role change; RocketMQ's files say nothing.
"""

from attrs import frozen


class ReadRefusedError(Exception):
    """The store can be read, and should not be as it was asked for. The message says what, why and what next."""


@frozen(kw_only=True)
class LogNow:
    """The log of a store as it is now. Offsets in bytes.

    `sound_end` is where its sound records end, `written_end` where its files do; `confirmed` None: it is not known.
    """

    name: str
    first: int
    written_end: int
    sound_end: int | None = None  # None: nobody looked, for it is not needed.
    confirmed: int | None = None
    is_running: bool = False


def needs_sound_end(*, is_running: bool, unconfirmed: bool) -> bool:
    """Whether readable_end asks for it: it has to be looked for, which takes reads."""
    return unconfirmed or not is_running


def readable_end(log: LogNow, *, unconfirmed: bool) -> int:
    """The first byte that is not to be read. Raises ReadRefusedError."""
    if needs_sound_end(is_running=log.is_running, unconfirmed=unconfirmed):
        assert log.sound_end is not None
        return log.sound_end
    if log.confirmed is None:
        raise ReadRefusedError(
            f"{log.name}: a broker has this store open, and nothing tells up to where its log is confirmed; what lies behind "
            "may be cut when roles change. Name the broker, option broker=HOST:PORT, if it is one of twinlog's; or read all "
            "that is sound, option unconfirmed=true; or read a stopped store, or a backup."
        )
    return min(log.confirmed, log.written_end)


def start_of(log: LogNow, start: int, end: int, *, fail_on_data_loss: bool = True) -> int:
    """Where a reader that has read up to `start` goes on; `end` is the readable one. Raises ReadRefusedError.

    What is confirmed may fall when slaves leave, so a reader may be ahead of `end`; it cannot be ahead of the log.
    """
    if start < log.first:
        if not fail_on_data_loss:
            return log.first
        raise ReadRefusedError(
            f"{log.name}: bytes {start} to {log.first} are gone: retention removed them before they were read, for the log "
            f"begins at {log.first} now. To go on without them, set option failOnDataLoss=false; to have them, restore a "
            "backup that holds them and read that with a checkpoint of its own; and keep files longer (fileReservedTime)."
        )
    if start > (log.written_end if log.sound_end is None else log.sound_end):
        raise ReadRefusedError(
            f"{log.name}: it was read up to {start}, and the log ends before that, at {max(end, log.sound_end or 0)}: it was "
            "cut, or this is another store. What was read behind the cut is no part of the log any more: `twinlog log info` "
            "tells of cuts. Start anew with an empty checkpoint and an empty destination."
        )
    return start


def next_end(start: int, end: int, size_max: int | None) -> int:
    """Where the next batch ends: `size_max` bytes of log on at most, None for no limit. Never before `start`.

    Any byte will do: a batch is made of the records that begin in it.
    """
    return max(start, end if size_max is None else min(end, start + size_max))

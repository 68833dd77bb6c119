"""Statistics of a store."""

from attrs import frozen

from twinlog.store.truncation.divergent import Divergent


@frozen
class StoreStatistics:
    """A snapshot for people and metrics. Offsets and sizes in bytes."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    put_messages: int
    put_bytes: int
    put_failed: int
    get_messages: int
    writable: bool
    why_not_writable: str
    scrubbed_offset: int  # From here on all bytes were read, or written, since the start.
    unscrubbed_bytes: int
    damaged_bytes: int
    lost_bytes: int  # Of the log's end, which were on the disk.
    lost_start_bytes: int  # Of its start, of which the files are gone.
    in_doubt_bytes: int  # Bytes that differ from their digest, where no CRC covers them.
    wrong_units: int
    divergent: tuple[Divergent, ...]  # Kept cuts.

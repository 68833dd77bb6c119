"""Where the first record behind any byte of a log begins, so that splits can be cut anywhere. Reads a bounded part of the log.

The records in front of the byte are walked from one to the next, beginning at the start of the file or, where that is far away,
at the first sound record a bounded way before. That one might lie in the body of another, made so that it names its own
place: then other records begin in front of the byte that the walk does not meet, and the file is walked from its start.
"""

from twinlog.cluster.pipeline.sources.heads import HEAD_SIZE, read_heads
from twinlog.cluster.pipeline.sources.log_bytes import LogBytes
from twinlog.store.record.resync import candidates, next_record
from twinlog.store.record.stale_records import begins_with_record

LOOK_BACK = 8 << 20  # No record is larger than half of it, unless maxMessageSize says so.
_WINDOW = 4 << 20
_MAGIC_PREFIX = b"\xda\xa3\x20"


def first_record(
    source: LogBytes, offset: int, first: int, end: int, look_back: int = LOOK_BACK
) -> tuple[int, str | None]:
    """Where the first record from `offset` on begins, as far as what lies before tells; `offset` and a reason if it does not.

    The log has bytes `first` to `end`. The place may be behind a blank, at the start of a file, and behind the end of the log.
    """
    anchor = max(first, offset - offset % source.file_size)
    if offset <= anchor or offset >= end:
        return offset, None
    if offset - anchor <= look_back:
        return _walk(source, anchor, offset, end, set())
    low, file_end = offset - look_back, min(end, source.file_end(offset))
    found = next_record(source.read_patiently, low, file_end, source.file_size, heads_end=offset)
    if found is None or found >= offset:
        return offset, "no sound record lies before it"
    met: set[int] = set()
    place = _walk(source, found, offset, end, met)
    return place if _are_all(source, met, found, offset) else _walk(source, anchor, offset, end, set())


def _walk(source: LogBytes, at: int, offset: int, end: int, met: set[int]) -> tuple[int, str | None]:
    """From `at`, where a record should begin, to the first one from `offset` on; adds to `met` where those before it begin."""
    file_end = min(end, source.file_end(at))
    while at < offset:
        wanted = min(_WINDOW, offset - at) + HEAD_SIZE
        data = source.read_patiently(at, wanted)
        heads = read_heads(memoryview(data), at, source.file_size)
        starts = (heads.starts + at).tolist()
        met.update(start for start in starts if start < offset)
        if starts and starts[-1] >= offset:
            return starts[-1], None
        problem, behind = heads.problem, at + heads.end
        if problem is None and behind < offset and len(data) < wanted:
            problem = "the file ends here"
        crosses = behind > offset and not heads.is_blank
        if (
            starts
            and (crosses or problem)
            and not begins_with_record(source.read_patiently, starts[-1], source.file_size)
        ):
            problem, behind = "it lies in a record that is not sound", starts[-1]  # Its size may be wrong, too.
        if problem is not None and behind < offset:
            found = next_record(source.read_patiently, behind + 1, file_end, source.file_size, heads_end=offset)
            if found is None or found >= offset:  # What lies behind it is for the caller to look for.
                return offset, problem
            behind = found
        at = behind
    return at, None


def _are_all(source: LogBytes, met: set[int], start: int, end: int) -> bool:
    """Whether no other records seem to begin between two offsets of a file than those that were met."""
    data = source.read_patiently(start, end - start + HEAD_SIZE)
    if data.count(_MAGIC_PREFIX, 0, end - start + 7) <= len(met):
        return True
    found = (start + position for position, _ in candidates(data, 0, start, source.file_size))
    return all(at in met for at in found if at < end)

"""Are the last bytes of a master and its candidate the same? The digest comes with the answer to a hold, and costs no question.

What lies before them was compared by digests when the candidate began to follow, and verified record by record as it came.
"""

import trio

from twinlog.ha.log import ComparableStore
from twinlog.store.integrity.digest import digest
from twinlog.store.log.range import LogRange

TAIL_MAX = 4 << 20  # Bytes: some milliseconds to read and digest, while producers wait.


async def tail_digest(store: ComparableStore, end: int) -> tuple[int, str]:
    """Where the stretch begins that ends at `end`, and its digest in hex. Raises OSError."""
    start = max(store.commit_log.min_offset, end - TAIL_MAX)
    return start, await digest_of(store, start, end)


async def digest_of(store: ComparableStore, start: int, end: int) -> str:
    """Of bytes of the log; of those that it has. Raises OSError."""
    with LogRange.open(store.commit_log, start, end) as bytes_:
        return (await trio.to_thread.run_sync(lambda: digest(bytes_.read(start, end - start)))).hex()

"""Keeps twinlog/digest up to date: loads it, drops what does not fit the log, and follows the log's end in a thread.

After a clean stop the file is valid when the log ends where the file says. When the log is longer (RocketMQ ran meanwhile, or
this process crashed) the last covered block is compared with the log, and the ones before it while they differ: what was cut
and rewritten lies at the end. A shorter log cuts the file. What is not covered is computed from the end of the coverage on."""

import os
from bisect import bisect_left
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.hooks import StoreHooks
from twinlog.store.integrity.digest import (
    BLOCK_SIZE,
    DIGEST_SIZE,
    PAGE_SIZE,
    Decoded,
    DigestBlock,
    LogDigests,
    ceil_block,
    decode,
    digest,
    digests_of_range,
    floor_block,
)
from twinlog.store.integrity.throttled_scan import ThrottledReader
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.range import LogRange
from twinlog.store.util.sync import write_durably

log = structlog.get_logger()

_DEAD_MAX = 8  # The file is rewritten when one in so many of its digests is of a deleted file.


@define(eq=False)
class DigestFile:
    """Keeps digests on the disk. They are always those of `digests`, which others change."""

    path: Path
    digests: LogDigests
    cuts: int = field(default=0, init=False)  # Counted: what a thread computed before a cut may be outdated.
    _saved_end: int = field(default=0, init=False)  # Blocks below are in the file.
    _fd: int = field(default=-1, init=False)

    @property
    def is_open(self) -> bool:
        """True while digests are kept on the disk."""
        return self._fd >= 0

    @property
    def has_many_dead(self) -> bool:
        """True when much of the file belongs to deleted log files."""
        return self.digests.dead * _DEAD_MAX > len(self.digests.entries) // DIGEST_SIZE

    def load(self) -> Decoded | None:
        """The decoded file; None, with a line in the log, when it cannot be used."""
        try:
            found = decode(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            found = str(error)
        path = str(self.path)
        if isinstance(found, str):
            log.warning("digest file unusable; digests are recomputed", path=path, found=found)
            return None
        if found.error is not None:
            kept = found.digests.end
            log.warning("digest file partly unusable; that part is recomputed", path=path, found=found.error, kept=kept)
        return found

    def open(self, *, is_loaded: bool) -> None:
        """Begin to keep the digests; `is_loaded`: they are those of the file, but for some that were cut at the end."""
        try:
            if not is_loaded or self.has_many_dead:
                self.digests.compact()
                self._take(_write_new(self.path, self._content()))
                return
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            os.pwrite(self._fd, self.digests.encode_header(), 0)
            os.fdatasync(self._fd)  # From now on it fits no stopped log.
            self.cut()
        except OSError as error:
            self._give_up(error)

    def changed(self, offset: int) -> None:
        """The digests from the block of `offset` on are to be written again."""
        self._saved_end = min(self._saved_end, offset)

    async def save(self) -> None:
        """Write new digests, without a flush: those lost in a crash are computed again. Raises OSError."""
        if self._fd < 0:
            return
        digests, cuts = self.digests, self.cuts
        end, first = digests.end, digests.page_of(min(self._saved_end, digests.end))
        pages = digests.encode_pages(first)
        await trio.to_thread.run_sync(os.pwrite, self._fd, pages, first * PAGE_SIZE)
        if cuts == self.cuts:
            self._saved_end = end
        else:
            self.cut()

    def cut(self) -> None:
        """Cut the file where the digests end now. At once: a crash must not bring the rest back."""
        self.cuts += 1
        if self._fd < 0:
            return
        first = self.digests.page_of(self.digests.end)
        pages = self.digests.encode_pages(first)
        try:
            os.pwrite(self._fd, pages, first * PAGE_SIZE)
            os.ftruncate(self._fd, first * PAGE_SIZE + len(pages))
        except OSError as error:
            self._give_up(error)
        self._saved_end = self.digests.end

    async def sync(self) -> None:
        """Make a cut durable. Raises OSError."""
        if self._fd >= 0:
            fd = os.dup(self._fd)
            try:
                await trio.to_thread.run_sync(os.fdatasync, fd)
            finally:
                os.close(fd)

    async def write_anew(self) -> None:
        """Rewrite the file without the digests of deleted log files. Raises OSError."""
        cuts = self.cuts
        self.digests.compact()
        self._take(await trio.to_thread.run_sync(_write_new, self.path, self._content()))
        if cuts != self.cuts:
            self.cut()

    async def stop(self, now_ms: int) -> None:
        """Mark the file as valid for the log as it ends now. Raises OSError."""
        await self.save()
        await trio.to_thread.run_sync(os.fdatasync, self._fd)  # The digests, before the header that makes them valid.
        await trio.to_thread.run_sync(os.pwrite, self._fd, self.digests.encode_header(now_ms), 0)
        await trio.to_thread.run_sync(os.fdatasync, self._fd)

    def close(self) -> None:
        """Leave the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _content(self) -> bytes:
        return self.digests.encode_header() + self.digests.encode_pages()

    def _take(self, fd: int) -> None:
        self.close()
        self._fd, self._saved_end = fd, self.digests.end

    def _give_up(self, error: OSError) -> None:
        log.warning("cannot write the digest file; digests are not kept", path=str(self.path), error=str(error))
        self.close()


def _write_new(path: Path, content: bytes) -> int:
    """Replace a file, durably; returns its descriptor."""
    path.parent.mkdir(exist_ok=True)
    write_durably(path, content, new_mode=0o644)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


DIGEST_BYTES_PER_SECOND = 32 << 20  # Unless configured.
_BATCH = 16 << 20  # Bytes of log for one trip to a thread.
_INTERVAL_SECONDS = 1.0
_CLOSE_MAX = 256 << 20  # The most that a stop still digests; the rest is left to the next start.


@define(eq=False)
class DigestService:
    """The digests of an open log. Everything runs on the event loop's thread, except reads of the log."""

    log: CommitLog
    path: Path
    hooks: StoreHooks
    old_bytes_per_second: int  # For bytes from before this start: they may have to come from the disk.
    digests: LogDigests = field(factory=LogDigests, init=False)
    doubtful_from: int = field(default=0, init=False)  # Digests from here on may be of bytes that a crash took away.
    doubtful_end: int = field(default=0, init=False)
    # Blocks that differed at the start, although nothing was written meanwhile.
    suspects: list[DigestBlock] = field(factory=list, init=False)
    _old_end: int = field(default=0, init=False)
    _file: DigestFile = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._file = DigestFile(self.path, self.digests)

    @property
    def cuts(self) -> int:
        """A counter of cuts: results that a thread computed before the last cut may be outdated."""
        return self._file.cuts

    # Start

    def open(self, *, after_crash: bool, durable_offset: int) -> None:
        """Load the file and drop what does not fit the log. `durable_offset`: all below was on disk before a crash.

        For the thread that loads the store.
        """
        self._old_end = self.log.max_offset
        stopped_ms, is_whole = self._load()
        digests = self.digests
        try:
            if digests.start < self.log.min_offset:
                self._drop_below(self.log.min_offset)
                is_whole = False
            if stopped_ms and digests.end == self.log.max_offset:
                # Nothing was written since: a differing last block is damaged. Whole blocks are left to the scrub.
                last = digests.blocks(digests.whole_end, digests.end)
                self.suspects += (block for block in last if not self._fits(block))
            else:
                digests.cut(self.log.max_offset)
                self._walk_back()
        except OSError as error:  # The scrub will report it.
            log.warning("parts of the log are unreadable", error=str(error))
        digests.cut(digests.whole_end)
        if after_crash:
            self.doubtful_from, self.doubtful_end = min(durable_offset, digests.end), digests.end
        self._file.open(is_loaded=is_whole)

    def _load(self) -> tuple[int, bool]:
        """Take the file's digests. Returns the time of its clean stop in ms, or 0, and True if all of it was usable."""
        found = self._file.load()
        if found is not None and found.digests.start > self.log.min_offset:
            log.warning("digest file begins behind the log's start; digests are recomputed", path=str(self.path))
            found = None
        self.digests = self._file.digests = (
            found.digests if found is not None else LogDigests.beginning_at(self.log.min_offset)
        )
        return (found.stopped_ms, found.error is None) if found is not None else (0, False)

    def _fits(self, block: DigestBlock) -> bool:
        with LogRange.open(self.log, block.start, block.end) as bytes_:
            return digest(bytes_.read(block.start, block.end - block.start)) == block.digest

    def _walk_back(self) -> None:
        """Drop differing digests at the end, found by steps of 1, 2, 4 .. blocks and a binary search."""
        digests = self.digests

        def differs(block: int) -> bool:
            at = max(digests.start, block * BLOCK_SIZE)
            return not self._fits(next(digests.blocks(at, at + 1)))

        if digests.end == digests.start:
            return
        first = digests.start // BLOCK_SIZE
        low = bad = ceil_block(digests.end) // BLOCK_SIZE  # Blocks from `bad` on differ.
        step = 1
        while bad > first and differs(low := max(first, bad - step)):
            bad, step = low, step * 2
        bad = bisect_left(range(bad), True, lo=low, key=differs)
        bad_from = max(digests.start, bad * BLOCK_SIZE)
        if bad_from < digests.end:
            log.info(
                "the log was rewritten from this offset on; its digests are recomputed",
                offset=bad_from,
                bytes=digests.end - bad_from,
            )
            digests.cut(bad_from)

    def _drop_below(self, offset: int) -> None:
        """Follow retention: the log's first files are deleted."""
        head = b""
        if offset % BLOCK_SIZE and offset < self.digests.end:
            end = min(self.digests.end, ceil_block(offset))
            with LogRange.open(self.log, offset, end) as bytes_:
                head = digest(bytes_.read(offset, end - offset))
            self._file.changed(offset)
        self.digests.drop_below(offset, head)

    # Upkeep

    async def run(self) -> None:
        """Follow the log until cancelled."""
        while True:
            try:
                await self.advance()
            except OSError as error:  # The scrub reports bad sectors; only an error of the side file matters here.
                log.warning("digest update failed; retrying in 60 s", error=str(error))
                await trio.sleep(60)
                continue
            # A log that is written to has a new block every few ms: one trip to a thread for those of a second.
            is_behind = self.log.max_offset - self.digests.whole_end >= _BATCH
            await trio.sleep(0 if is_behind else _INTERVAL_SECONDS)

    async def advance(self, *, thorough: bool = False) -> bool:
        """Digest up to a batch of whole blocks behind the coverage; False when there is none. Raises OSError.

        `thorough`: a partial last block too, and no pause.
        """
        digests, cuts = self.digests, self.cuts
        if self.log.min_offset > digests.start:
            self._drop_below(self.log.min_offset)
            if self._file.is_open and self._file.has_many_dead:
                await self._file.write_anew()
        elif self.log.min_offset < digests.start == digests.end and self.log.files.files:
            digests.begin_at(self.log.min_offset)  # The log began anew.
        start = digests.whole_end
        end = self.log.max_offset if thorough else max(start, floor_block(self.log.max_offset))
        end = min(end, floor_block(start) + _BATCH)
        if start >= end or (thorough and end == digests.end):
            return False
        pause = _BATCH / self.old_bytes_per_second if end <= self._old_end and not thorough else 0
        with LogRange.open(self.log, start, end) as bytes_:
            found = await trio.to_thread.run_sync(digests_of_range, ThrottledReader(bytes_).read, start, end)
        # Digests of a range that was cut or deleted meanwhile are dropped.
        if cuts == self.cuts and digests.whole_end == start and self.log.min_offset <= start:
            digests.extend(found, end)
            if not thorough:
                await self._file.save()
        await trio.sleep(pause)
        return True

    def truncated(self, offset: int) -> None:
        """The log was cut at `offset`. Call it before anything is written there."""
        self._old_end = min(self._old_end, offset)
        self.suspects = [block for block in self.suspects if block.end <= offset]
        self.doubtful_end = min(self.doubtful_end, offset)
        self.digests.cut(offset)
        self._file.cut()

    async def sync(self) -> None:
        """Make the effect of truncated() durable. Raises OSError."""
        await self._file.sync()

    def replace(self, block: DigestBlock) -> None:
        """Replace the digest of a block."""
        self.digests.replace(block)
        self._file.changed(block.start)

    # Stop

    async def close(self, *, clean: bool) -> None:
        """Save the file; `clean`: the whole log is on disk, and the file may say that it fits it."""
        try:
            if clean and self._file.is_open:
                while self.log.max_offset - self.digests.end <= _CLOSE_MAX and await self.advance(thorough=True):
                    pass
                await self._file.stop(self.hooks.now_ms())
        except OSError as error:
            log.warning("cannot write the digest file; digests are not kept", path=str(self.path), error=str(error))
        self.release()

    def release(self) -> None:
        """Close the file as it is."""
        self._file.close()

"""Keeps twinlog/digest: opens it, decides what of it still fits the log, and follows the log's end in a thread.

After a clean stop the file fits when the log ends where it ends. When the log is longer (RocketMQ ran meanwhile, or we crashed)
the last covered block is looked at, and the one before it while they differ: what was cut and written anew lies at the end. A
shorter log cuts the file. Whatever is not covered is computed again behind the end of the coverage.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
import trio
from attrs import define, field

from store.commit_log import CommitLog
from store.digest import (
    BLOCK_SIZE,
    DIGEST_SIZE,
    PAGE_SIZE,
    Block,
    BlockDigests,
    ceil_block,
    decode,
    digest,
    digests_of,
    floor_block,
)
from store.log_range import LogRange
from store.mapped_file import sync_directory

log = structlog.get_logger()

DIGEST_BYTES_PER_SECOND = 32 << 20  # Where nobody says otherwise.
_BATCH = 16 << 20  # Bytes of log for one trip to a thread.
_PIECE = 1 << 20
_LOOK_SECONDS = 1.0
_CLOSE_MAX = 256 << 20  # What a stop still digests; the rest is left to the next start.
_DEAD_MAX = 8  # The file is written anew when one in so many of its digests is of a deleted file.


@define(eq=False)
class DigestService:
    """The digests of a log that is open. Everything runs on the loop's thread, except what reads the log."""

    log: CommitLog
    path: Path
    now_ms: Callable[[], int]
    old_bytes_per_second: int  # For what was in the log before this start: it may have to come from the disk.
    digests: BlockDigests = field(factory=BlockDigests, init=False)
    doubtful_from: int = field(default=0, init=False)  # Digests from here on may be of bytes that a crash took away.
    doubtful_end: int = field(default=0, init=False)
    suspects: list[Block] = field(factory=list, init=False)  # Did not fit at start, although nobody wrote meanwhile.
    cuts: int = field(
        default=0, init=False
    )  # How often something was taken away: what a thread brings may be outdated.
    _old_end: int = field(default=0, init=False)
    _is_whole: bool = field(default=False, init=False)  # The file that was loaded can be gone on with.
    _saved_end: int = field(default=0, init=False)  # Blocks below are in the file.
    _fd: int = field(default=-1, init=False)

    # Start

    def open(self, *, after_crash: bool, durable_offset: int) -> None:
        """Load the file and drop what does not fit the log. `durable_offset`: all below was on disk before a crash.

        For the thread that loads the store.
        """
        self._old_end = self.log.max_offset
        self.digests = BlockDigests.beginning_at(self.log.min_offset)
        stopped_ms = self._load()
        digests = self.digests
        try:
            if digests.start < self.log.min_offset:
                self._drop_below(self.log.min_offset)
                self._is_whole = False
            if stopped_ms and digests.end == self.log.max_offset:
                self._check_last_block()
            else:
                digests.cut(self.log.max_offset)
                self._walk_back()
        except OSError as error:  # The scrub will tell where.
            log.warning("the log cannot be read everywhere", error=str(error))
        digests.cut(digests.whole_end)
        if after_crash:
            self.doubtful_from, self.doubtful_end = min(durable_offset, digests.end), digests.end
        try:
            if not self._reopen():
                self._take(_write_new(self.path, self._content()))
        except OSError as error:
            log.warning("the log's digests are not kept", path=str(self.path), error=str(error))

    def _load(self) -> int:
        """Take the file's digests; when it was closed cleanly, ms, or 0."""
        try:
            found = decode(self.path.read_bytes())
        except FileNotFoundError:
            return 0
        if isinstance(found, str):
            log.warning(
                "the log's digests are computed anew: the file cannot be used", path=str(self.path), found=found
            )
            return 0
        if found.error is not None:
            log.warning(
                "a part of the log's digests is computed anew",
                path=str(self.path),
                found=found.error,
                kept=found.digests.end,
            )
        if found.digests.start > self.log.min_offset:  # Of another log.
            log.warning("the log's digests are computed anew: it begins before them", path=str(self.path))
            return 0
        self.digests = found.digests
        self._is_whole = found.error is None
        return found.stopped_ms

    def _reopen(self) -> bool:
        """Go on in the file that was loaded, without writing all of it; False when it is better made anew."""
        if not self._is_whole or self._has_many_dead():
            return False
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(self._fd, self.digests.encode_header(), 0)
        os.fdatasync(self._fd)  # From now on it fits no stopped log.
        self._cut_file()
        return True

    def _has_many_dead(self) -> bool:
        return self.digests.dead * _DEAD_MAX > len(self.digests.entries) // DIGEST_SIZE

    def _fits(self, block: Block) -> bool:
        with LogRange.open(self.log, block.start, block.end) as bytes_:
            return digest(bytes_.read(block.start, block.end - block.start)) == block.digest

    def _check_last_block(self) -> None:
        """Nobody wrote since: a last block that does not fit is damaged. Whole blocks are left to the scrub."""
        start = self.digests.whole_end
        for block in self.digests.blocks(start, self.digests.end):
            if not self._fits(block):
                self.suspects.append(block)

    def _walk_back(self) -> None:
        """Drop the digests at the end that do not fit. Looks at every second, fourth, eighth .. block from the end."""
        digests = self.digests

        def fits(offset: int) -> bool:
            return self._fits(next(digests.blocks(offset, offset + 1)))

        if digests.end == digests.start:
            return
        bad_from, step = digests.end, 1  # Blocks from `bad_from` on differ.
        low = digests.start - 1  # The block of byte `low` fits; none does yet.
        while bad_from > digests.start:
            look = max(digests.start, ceil_block(bad_from) - step * BLOCK_SIZE)
            if fits(look):
                low = look
                break
            bad_from, step = max(digests.start, floor_block(look)), step * 2
        while low >= digests.start and ceil_block(low + 1) < bad_from:
            middle = floor_block((ceil_block(low + 1) + bad_from - 1) // 2)
            if fits(middle):
                low = middle
            else:
                bad_from = middle
        if bad_from < digests.end:
            log.info(
                "the log was written anew from here on, so are its digests",
                offset=bad_from,
                bytes=digests.end - bad_from,
            )
            digests.cut(bad_from)

    def _drop_below(self, offset: int) -> None:
        """The log's first files are gone."""
        head = b""
        if offset % BLOCK_SIZE and offset < self.digests.end:
            end = min(self.digests.end, ceil_block(offset))
            with LogRange.open(self.log, offset, end) as bytes_:
                head = digest(bytes_.read(offset, end - offset))
            self._saved_end = min(self._saved_end, floor_block(offset))
        self.digests.drop_below(offset, head)

    # Upkeep

    async def run(self) -> None:
        """Follow the log until cancelled."""
        while True:
            try:
                level = not await self.advance()
            except OSError as error:  # A bad sector is the scrub's to tell; the side file only matters to us.
                log.warning("the log's digests do not get on; next try in 60 s", error=str(error))
                await trio.sleep(60)
                continue
            await trio.sleep(_LOOK_SECONDS if level else 0)

    async def advance(self, *, thorough: bool = False) -> bool:
        """Digest up to a batch of whole blocks behind the coverage; False when there is none. Raises OSError.

        `thorough`: a partial last block too, and no pause.
        """
        digests, cuts = self.digests, self.cuts
        if self.log.min_offset > digests.start:
            self._drop_below(self.log.min_offset)
            if self._has_many_dead():
                await self._write_anew()
        start = digests.whole_end
        end = self.log.max_offset if thorough else max(start, floor_block(self.log.max_offset))
        end = min(end, floor_block(start) + _BATCH)
        if start >= end or (thorough and end == digests.end):
            return False
        pause = _BATCH / self.old_bytes_per_second if end <= self._old_end and not thorough else 0
        with LogRange.open(self.log, start, end) as bytes_:
            found = await trio.to_thread.run_sync(_digest_range, bytes_)
        # What was cut while the thread was at it, or lost its first file, is not taken.
        if cuts == self.cuts and digests.whole_end == start and self.log.min_offset <= start:
            digests.extend(found, end)
            if not thorough:
                await self._append_pages()
        await trio.sleep(pause)
        return True

    async def _append_pages(self) -> None:
        """Bring the pages of new blocks into the file. No flush: what a crash takes away is computed again."""
        if self._fd < 0:
            return
        digests, cuts = self.digests, self.cuts
        end, first = digests.end, digests.page_of(min(self._saved_end, digests.end))
        pages = digests.encode_pages(first)
        await trio.to_thread.run_sync(os.pwrite, self._fd, pages, first * PAGE_SIZE)
        if cuts == self.cuts:
            self._saved_end = end
        else:
            self._cut_file()

    def truncated(self, offset: int) -> None:
        """The log was cut at `offset`. Call it before anything is written there."""
        self.cuts += 1
        self._old_end = min(self._old_end, offset)
        self.suspects = [block for block in self.suspects if block.end <= offset]
        if offset < self.digests.end:
            self.digests.cut(offset)
            self._cut_file()

    def _cut_file(self) -> None:
        """Let the file end where the digests do."""
        if self._fd < 0:
            return
        digests = self.digests
        first = digests.page_of(digests.end)
        pages = digests.encode_pages(first)
        try:
            os.pwrite(self._fd, pages, first * PAGE_SIZE)
            os.ftruncate(self._fd, first * PAGE_SIZE + len(pages))
        except OSError as error:
            log.warning("the log's digests are not kept", path=str(self.path), error=str(error))
            self.release()
        self._saved_end = digests.end

    def replace(self, block: Block) -> None:
        """Take the digest of a block that was rightly another one."""
        self.digests.replace(block)
        self._saved_end = min(self._saved_end, block.start)

    # Stop

    async def close(self, *, clean: bool) -> None:
        """Save the file; `clean`: the whole log is on disk, and the file may say that it fits it."""
        try:
            if clean and self._fd >= 0:
                while self.log.max_offset - self.digests.end <= _CLOSE_MAX and await self.advance(thorough=True):
                    pass
                await self._stop()
        except OSError as error:
            log.warning("the log's digests are not kept", path=str(self.path), error=str(error))
        self.release()

    def release(self) -> None:
        """Close the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _stop(self) -> None:
        """Let the file say that it fits the log as it ends now."""
        await self._append_pages()
        await trio.to_thread.run_sync(
            os.fdatasync, self._fd
        )  # First the digests, then the header that vouches for them.
        await trio.to_thread.run_sync(os.pwrite, self._fd, self.digests.encode_header(self.now_ms()), 0)
        await trio.to_thread.run_sync(os.fdatasync, self._fd)

    async def _write_anew(self) -> None:
        """Make the file without the digests of files that are gone."""
        cuts = self.cuts
        self.digests.compact()
        self._take(await trio.to_thread.run_sync(_write_new, self.path, self._content()))
        if cuts != self.cuts:
            self._cut_file()

    def _content(self) -> bytes:
        return self.digests.encode_header() + self.digests.encode_pages()

    def _take(self, fd: int) -> None:
        self.release()
        self._fd, self._saved_end = fd, self.digests.end


def _digest_range(bytes_: LogRange) -> bytes:
    """In a thread: the system calls let others run, and a block takes 5 us besides."""
    found, offset = [], bytes_.start
    while offset < bytes_.end:
        piece = bytes_.read(offset, _PIECE - offset % _PIECE)
        found.append(digests_of(piece, offset))
        offset += len(piece)
        time.sleep(0)
    return b"".join(found)


def _write_new(path: Path, content: bytes) -> int:
    """Put a new file in the place of the old one, durably; its descriptor."""
    path.parent.mkdir(exist_ok=True)
    other = path.with_name(path.name + ".new")
    fd = os.open(other, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        other.replace(path)
        sync_directory(path.parent)
    except OSError:
        os.close(fd)
        raise
    return fd

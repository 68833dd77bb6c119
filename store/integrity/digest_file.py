"""The file twinlog/digest: loaded, gone on with, cut, and closed so that the next start can trust it."""

import os
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.integrity.digest import DIGEST_SIZE, PAGE_SIZE, BlockDigests, Decoded, decode
from twinlog.store.log.mapped_file import sync_directory

log = structlog.get_logger()

_DEAD_MAX = 8  # The file is written anew when one in so many of its digests is of a deleted file.


@define(eq=False)
class DigestFile:
    """Keeps digests on the disk. They are always those of `digests`, which others change."""

    path: Path
    digests: BlockDigests
    cuts: int = field(
        default=0, init=False
    )  # How often something was taken away: what a thread brings may be outdated.
    _saved_end: int = field(default=0, init=False)  # Blocks below are in the file.
    _fd: int = field(default=-1, init=False)

    @property
    def is_open(self) -> bool:
        """Whether anything is kept."""
        return self._fd >= 0

    @property
    def has_many_dead(self) -> bool:
        """Whether much of the file is of deleted log files."""
        return self.digests.dead * _DEAD_MAX > len(self.digests.entries) // DIGEST_SIZE

    def load(self) -> Decoded | None:
        """What the file says; None, after a line in the log, when it cannot be used."""
        try:
            found = decode(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            found = str(error)
        path = str(self.path)
        if isinstance(found, str):
            log.warning("the log's digests are computed anew: the file cannot be used", path=path, found=found)
            return None
        if found.error is not None:
            kept = found.digests.end
            log.warning("a part of the log's digests is computed anew", path=path, found=found.error, kept=kept)
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
        """Write new digests. No flush: what a crash takes away is computed again. Raises OSError."""
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
        """Let the file end where the digests do, which were cut: at once, for a crash must not bring them back."""
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
        """Bring what was cut to the disk. Raises OSError."""
        if self._fd >= 0:
            fd = os.dup(self._fd)
            try:
                await trio.to_thread.run_sync(os.fdatasync, fd)
            finally:
                os.close(fd)

    async def write_anew(self) -> None:
        """Make the file without the digests of log files that are gone. Raises OSError."""
        cuts = self.cuts
        self.digests.compact()
        self._take(await trio.to_thread.run_sync(_write_new, self.path, self._content()))
        if cuts != self.cuts:
            self.cut()

    async def stop(self, now_ms: int) -> None:
        """Let the file say that it fits the log as it ends now. Raises OSError."""
        await self.save()
        await trio.to_thread.run_sync(os.fdatasync, self._fd)  # The digests, before the header that vouches for them.
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
        log.warning("the log's digests are not kept", path=str(self.path), error=str(error))
        self.close()


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

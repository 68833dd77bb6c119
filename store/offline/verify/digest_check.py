"""Compares the log with twinlog/digest, where there is one: the only check that covers every byte of it."""

from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from twinlog.store.integrity.digest import DigestBlock, LogDigests, decode, digest
from twinlog.store.offline.directory import StoreDirectory, Writer
from twinlog.store.offline.finding import Finding, FindingKind, Severity


@frozen
class ComparedDigests:
    """Blocks that were compared with the side file before: all in `ranges`, of which `differing` differ from it.

    `ranges` are in order, and begin and end as blocks do.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    differing: tuple[DigestBlock, ...] = ()

    def part(self, start: int, end: int) -> "ComparedDigests":
        """Those of the blocks that begin in bytes `start` to `end`, and maybe of more ranges."""
        near = tuple(span for span in self.ranges if span[0] < end and start < span[1])
        return ComparedDigests(near, tuple(block for block in self.differing if start <= block.start < end))

    def joined(self, other: "ComparedDigests") -> "ComparedDigests":
        """These and others, which come behind."""
        ranges, rest = self.ranges, other.ranges
        if ranges and rest and ranges[-1][1] == rest[0][0]:
            ranges, rest = (*ranges[:-1], (ranges[-1][0], rest[0][1])), rest[1:]
        return ComparedDigests(ranges + rest, self.differing + other.differing)

    def has(self, block: DigestBlock) -> bool:
        """True if the block was compared."""
        return any(low <= block.start and block.end <= high for low, high in self.ranges)

    def others(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The bytes of `start` to `end` that are in none of the ranges."""
        for low, high in self.ranges:
            if start < low:
                yield start, min(low, end)
            start = max(start, high)
            if start >= end:
                return
        yield start, end


NOTHING_COMPARED = ComparedDigests()


@define(eq=False)
class DigestCheck:
    """The coverage of the side file, and blocks of the log that differ from it."""

    directory: StoreDirectory
    digests: LogDigests | None = None
    error: str | None = None
    end_is_sure: bool = False  # A clean stop left the file, and no broker ran since.
    differing: list[DigestBlock] = field(factory=list)
    checked_bytes: int = 0

    @classmethod
    def open(cls, directory: StoreDirectory) -> "DigestCheck":
        """Read the side file, if there is one. Raises OSError."""
        path = directory.root / "twinlog" / "digest"
        try:
            found = decode(path.read_bytes())
        except FileNotFoundError:
            return cls(directory)
        if isinstance(found, str):
            return cls(directory, error=found)
        is_sure = bool(found.stopped_ms) and directory.stopped_cleanly and directory.writer is Writer.TWINLOG
        return cls(directory, found.digests, found.error, is_sure)

    def check(
        self,
        start: int,
        end: int,
        progress: Callable[[int], None] = lambda _: None,
        known: ComparedDigests = NOTHING_COMPARED,
    ) -> None:
        """Compare the blocks that begin in bytes `start` to `end` of the log, except those in `known`. Raises OSError."""
        if self.digests is None:
            return
        log = self.directory.log
        self.checked_bytes += sum(
            min(high, end) - max(low, start) for low, high in known.ranges if low < end and start < high
        )
        for low, high in known.others(start, end):
            for block in self.digests.blocks(low, high):
                if block.start < start or known.has(block):
                    continue  # Begins before the log, or in the stretch before.
                data = log.read_across(block.start, block.end - block.start)
                if digest(data) != block.digest:
                    self.differing.append(block)
                self.checked_bytes += len(data)
                progress(len(data))
        self.differing = sorted([*self.differing, *known.differing], key=lambda block: block.start)

    def findings(self, log_end: int) -> Iterator[Finding]:
        """The findings. Blocks at the end may be of bytes lost in a crash, or cut by another broker."""
        if self.error is not None:
            yield Finding(
                kind=FindingKind.SIDE_FILE,
                severity=Severity.WARNING,
                file="twinlog/digest",
                message=f"not usable: {self.error}; the bytes that it covered are not checked",
            )
        if self.digests is None:
            return
        if self.end_is_sure and self.digests.end > log_end:
            yield Finding(
                kind=FindingKind.LOG_TAIL,
                file="twinlog/digest",
                phy_offset=log_end,
                message="the log lost its tail: there are digests of more",
                expected=f">= {self.digests.end}",
                actual=log_end,
            )
        doubtful_from = self.digests.end
        for block in reversed(self.differing) if not self.end_is_sure else ():
            if block.end != doubtful_from:
                break
            doubtful_from = block.start
        for block in self.differing:
            is_doubtful = block.start >= doubtful_from
            yield Finding(
                kind=FindingKind.DIGEST,
                severity=Severity.WARNING if is_doubtful else Severity.ERROR,
                phy_offset=block.start,
                message=f"bytes {block.start} to {block.end} of the log differ from their digest"
                + ("; they are at its end, which may have been cut and rewritten" if is_doubtful else ""),
                expected=block.digest.hex(),
            )

"""Digests of the log by blocks: the side file twinlog/digest as bytes and as an object. No I/O.

A block is 64 KiB of the log, counted from offset 0 across files; the unused rest of a file behind a blank belongs to it. Its
digest is the xxh3-128 of its covered bytes: all of them, except in the first block when the log starts inside it, and in the
last one, which has a digest only after a clean stop.

    page 0        header: 8s magic | u32 version | u32 block size | i64 first block | i64 start | i64 end | i64 stopped at, ms
                  u64 xxh3_64 of these
    page 1, 2 ..  255 digests of 16 bytes, block after block from the first one on | u32 page | u32 digests in it
                  u64 xxh3_64 of the page before

Big endian; a page has 4096 bytes. Bytes `start` to `end` of the log are covered. While the log is in use `stopped at` is 0, `end`
is void, and the pages show how far whole blocks are covered.
"""

import time
from collections.abc import Callable, Iterator
from struct import Struct

import xxhash
from attrs import define, field, frozen

BLOCK_SIZE = 65_536
DIGEST_SIZE = 16
PAGE_SIZE, PAGE_DIGESTS = 4096, 255
_PIECE = 1 << 20  # Bytes that are read at a time.
MAGIC, VERSION = b"twdigest", 1
_HEADER, _TRAILER, _CHECKSUM = Struct(">8sIIqqqq"), Struct(">II"), Struct(">Q")
assert PAGE_DIGESTS * DIGEST_SIZE + _TRAILER.size + _CHECKSUM.size == PAGE_SIZE
assert _HEADER.size + _CHECKSUM.size == 56

digest = xxhash.xxh3_128_digest


@frozen
class DigestBlock:
    """Bytes `start` to `end` of the log, inside one block, and their digest."""

    start: int
    end: int
    digest: bytes


@define(eq=False)
class LogDigests:
    """The digests of all blocks, or parts of blocks, in bytes `start` to `end` of the log."""

    start: int = 0
    end: int = 0
    first_block: int = 0  # Of `entries`; those of blocks below `start` are dead.
    entries: bytearray = field(factory=bytearray)

    @classmethod
    def beginning_at(cls, start: int) -> "LogDigests":
        """An empty coverage that will start at byte `start`."""
        return cls(start, start, start // BLOCK_SIZE)

    @property
    def whole_end(self) -> int:
        """The end without a partial last block: from here on digests are to be computed."""
        return max(self.start, floor_block(self.end))

    @property
    def dead(self) -> int:
        """The number of entries of blocks below the start."""
        return self.start // BLOCK_SIZE - self.first_block

    def extend(self, digests: bytes, end: int) -> None:
        """Add the digests of the blocks from `whole_end` up to `end`; that of a partial last block is replaced."""
        self.cut(self.whole_end)
        blocks = (ceil_block(end) - floor_block(self.end)) // BLOCK_SIZE if end > self.end else 0
        assert len(digests) == DIGEST_SIZE * blocks
        self.entries += digests
        self.end = end
        self._check()

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on, and the block that is cut by it."""
        if offset < self.end:
            self.end = max(self.start, floor_block(offset))
            if self.end == self.start:
                self.begin_at(self.start)
            else:
                del self.entries[self._index(self.end) :]
                self._check()

    def _check(self) -> None:
        """Each block of the coverage has one entry."""
        assert self.start <= self.end
        blocks = ceil_block(self.end) // BLOCK_SIZE - self.first_block if self.end > self.start else 0
        assert len(self.entries) == blocks * DIGEST_SIZE

    def drop_below(self, offset: int, head: bytes) -> None:
        """Start the coverage at `offset`. `head`: the digest of the rest of a block that it cuts, else unused."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self.begin_at(offset)
            return
        self.start = offset
        if offset % BLOCK_SIZE:
            at = self._index(offset)
            self.entries[at : at + DIGEST_SIZE] = head

    def begin_at(self, start: int) -> None:
        """Forget everything, and start the coverage at byte `start`."""
        self.start = self.end = start
        self.first_block = start // BLOCK_SIZE
        self.entries.clear()

    def compact(self) -> None:
        """Free the dead entries."""
        del self.entries[: self.dead * DIGEST_SIZE]
        self.first_block = self.start // BLOCK_SIZE

    def replace(self, block: DigestBlock) -> None:
        """Replace the digest of a covered block with the same bounds."""
        assert self.start <= block.start < block.end <= self.end
        assert len(block.digest) == DIGEST_SIZE
        at = self._index(block.start)
        self.entries[at : at + DIGEST_SIZE] = block.digest

    def blocks(self, start: int, end: int) -> Iterator[DigestBlock]:
        """The covered blocks, or parts of blocks, that have a byte in `start` to `end`, in order."""
        start, end = max(start, self.start), min(end, self.end)
        while start < end:
            at, low = self._index(start), max(self.start, floor_block(start))
            high = min(self.end, floor_block(start) + BLOCK_SIZE)
            yield DigestBlock(low, high, bytes(self.entries[at : at + DIGEST_SIZE]))
            start = high

    def entries_of(self, start: int, end: int) -> bytes:
        """The digests of whole blocks, one after the other; all of them are covered."""
        assert self.start <= start <= end <= self.end
        assert start % BLOCK_SIZE == end % BLOCK_SIZE == 0
        return bytes(self.entries[self._index(start) : self._index(end)])

    def _index(self, offset: int) -> int:
        """The position of the entry of the block that holds `offset`."""
        return (offset // BLOCK_SIZE - self.first_block) * DIGEST_SIZE

    # The file

    def page_of(self, offset: int) -> int:
        """The number of the page that holds the block of `offset`."""
        return 1 + (offset // BLOCK_SIZE - self.first_block) // PAGE_DIGESTS

    def encode_header(self, stopped_ms: int = 0) -> bytes:
        """Page 0. `stopped_ms`: when the log was closed and flushed, ms; 0 while it is in use."""
        fields = (MAGIC, VERSION, BLOCK_SIZE, self.first_block, self.start, self.end, stopped_ms)
        return _sealed(_HEADER.pack(*fields)).ljust(PAGE_SIZE, b"\0")

    def encode_pages(self, first: int = 1) -> bytes:
        """All pages of digests from number `first` on."""
        pages, size = [], PAGE_DIGESTS * DIGEST_SIZE
        for at in range((first - 1) * size, len(self.entries), size):
            digests = bytes(self.entries[at : at + size])
            trailer = _TRAILER.pack(1 + at // size, len(digests) // DIGEST_SIZE)
            pages.append(_sealed(digests.ljust(size, b"\0") + trailer))
        return b"".join(pages)


@frozen
class Decoded:
    """A side file, decoded. `stopped_ms` is 0 unless a clean stop left it; `error` describes a damaged part."""

    digests: LogDigests
    stopped_ms: int
    error: str | None = None


def decode(data: bytes) -> Decoded | str:
    """Decode a side file; a text when all of it is unusable. Pages behind a damaged one are left out."""
    header, checksum = data[: _HEADER.size], data[_HEADER.size : _HEADER.size + _CHECKSUM.size]
    if len(data) < PAGE_SIZE or _sealed(header) != header + checksum:
        return "its header is damaged"
    magic, version, block_size, first_block, start, end, stopped_ms = _HEADER.unpack(header)
    if (magic, version, block_size) != (MAGIC, VERSION, BLOCK_SIZE):
        return f"it is of another kind or version ({magic!r}, {version}, {block_size})"
    if not 0 <= first_block * BLOCK_SIZE <= start:
        return f"its first block {first_block} lies behind its start {start}"
    entries, error = _decode_pages(data)
    digests = LogDigests(start, 0, first_block, entries)
    covered = (first_block + len(entries) // DIGEST_SIZE) * BLOCK_SIZE
    expected = ceil_block(end) if end > start else first_block * BLOCK_SIZE
    if stopped_ms and error is None:
        if covered == expected and end >= start:
            digests.end = end
            return Decoded(digests, stopped_ms)
        error = f"its pages end at {covered}, its header says {end}"
    if stopped_ms and covered > floor_block(end):  # The last of them may be a partial one.
        covered = floor_block(end)
    digests.end = max(start, covered)
    if digests.end == start:
        digests = LogDigests.beginning_at(start)
    del digests.entries[(ceil_block(digests.end) // BLOCK_SIZE - digests.first_block) * DIGEST_SIZE :]
    return Decoded(digests, 0, error)


def _decode_pages(data: bytes) -> tuple[bytearray, str | None]:
    entries = bytearray()
    for number in range(1, -(-len(data) // PAGE_SIZE)):
        page = data[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]
        content = page[: -_CHECKSUM.size]
        if len(page) < PAGE_SIZE or _sealed(content) != page:
            return entries, f"page {number} is damaged"
        says, count = _TRAILER.unpack_from(content, PAGE_DIGESTS * DIGEST_SIZE)
        if says != number or count > PAGE_DIGESTS:
            return entries, f"page {number} is another one"
        entries += content[: count * DIGEST_SIZE]
        if count < PAGE_DIGESTS:
            break
    return entries, None


def _sealed(content: bytes) -> bytes:
    return content + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))


def floor_block(offset: int) -> int:
    """The start of the block that a byte lies in."""
    return offset - offset % BLOCK_SIZE


def ceil_block(offset: int) -> int:
    """The end of the last block that lies wholly or partly below `offset`."""
    return -(-offset // BLOCK_SIZE) * BLOCK_SIZE


def parts_of(start: int, end: int, size: int = BLOCK_SIZE) -> Iterator[tuple[int, int]]:
    """The parts of a range of the log, divided at multiples of `size`: its blocks, groups of blocks, or files."""
    while start < end:
        high = min(end, start - start % size + size)
        yield start, high
        start = high


def digests_of_range(read: Callable[[int, int], bytes], start: int, end: int) -> bytes:
    """The digests of the blocks, or parts of blocks, of a range, read piece by piece. For a thread: others run in between."""
    found, offset = [], start
    while offset < end:
        piece = read(offset, _PIECE - offset % _PIECE)
        found.append(digests_of(piece, offset))
        offset += len(piece)
        time.sleep(0)
    return b"".join(found)


def digests_of(data: bytes | memoryview, offset: int) -> bytes:
    """The digests of the blocks, or parts of blocks, in bytes that lie at `offset` of the log."""
    view = memoryview(data)
    bounds = parts_of(offset, offset + len(view))
    return b"".join([digest(view[low - offset : high - offset]) for low, high in bounds])


@frozen
class RangeDigests:
    """One digest for each group of 64 KiB blocks of bytes `start` to `end`, in order.

    Groups lie at multiples of `blocks_per_digest` blocks, counted from offset 0 of the log; the first and the last one are cut
    to the range. A group of one block has the block's digest, a larger one the digest of its blocks' digests. An answer may end
    at a block's end before the requested end.
    """

    start: int
    end: int
    blocks_per_digest: int
    digests: tuple[bytes, ...]

    def groups(self) -> Iterator[tuple[int, int, bytes]]:
        """Start, end and digest of each group."""
        bounds = parts_of(self.start, self.end, self.blocks_per_digest * BLOCK_SIZE)
        return ((low, high, found) for (low, high), found in zip(bounds, self.digests, strict=True))


def group_count(start: int, end: int, blocks_per_digest: int) -> int:
    """The number of groups that a range touches."""
    size = blocks_per_digest * BLOCK_SIZE
    return -(-end // size) - start // size if start < end else 0


def grouped(digests: bytes, start: int, end: int, blocks_per_digest: int) -> RangeDigests:
    """Join the digests of the blocks, or parts of blocks, of a range into groups."""
    if blocks_per_digest == 1:
        pieces = tuple([digests[at : at + DIGEST_SIZE] for at in range(0, len(digests), DIGEST_SIZE)])
        return RangeDigests(start, end, 1, pieces)
    view, first = memoryview(digests), start // BLOCK_SIZE
    found = []
    for low, high in parts_of(start, end, blocks_per_digest * BLOCK_SIZE):
        begin, stop = low // BLOCK_SIZE - first, ceil_block(high) // BLOCK_SIZE - first
        part = view[begin * DIGEST_SIZE : stop * DIGEST_SIZE]
        found.append(digest(part))
    return RangeDigests(start, end, blocks_per_digest, tuple(found))

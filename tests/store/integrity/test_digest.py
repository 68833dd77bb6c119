"""Digests of blocks: whatever happens to the log, they are those of its bytes, and a damaged file gives no wrong ones."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.store.integrity.digest import (
    BLOCK_SIZE,
    DIGEST_SIZE,
    PAGE_DIGESTS,
    PAGE_SIZE,
    LogDigests,
    decode,
    digest,
    digests_of,
    floor_block,
    parts_of,
)

sizes = st.integers(0, 3 * BLOCK_SIZE)
steps = st.one_of(
    st.tuples(st.just("append"), sizes),
    st.tuples(st.just("cut"), sizes),
    st.tuples(st.just("retain"), sizes),
    st.tuples(st.sampled_from(["digest whole blocks", "digest all", "compact", "stop", "crash"]), st.just(0)),
)


class Model:
    """A log as bytes, and its digests kept as a store keeps them."""

    def __init__(self, start):
        self.start, self.data, self.random = start, b"", random.Random(1)
        self.digests = LogDigests.beginning_at(start)

    @property
    def end(self):
        return self.start + len(self.data)

    def bytes_of(self, start, end):
        return self.data[start - self.start : end - self.start]

    def step(self, name, size):
        digests = self.digests
        if name == "append":
            self.data += self.random.randbytes(size)
        elif name == "cut":
            self.data = self.data[: max(0, len(self.data) - size)]
            digests.cut(self.end)
        elif name == "retain":
            size = min(size, len(self.data))
            self.start, self.data = self.start + size, self.data[size:]
            head_end = min(digests.end, floor_block(self.start) + BLOCK_SIZE)
            digests.drop_below(self.start, digest(self.bytes_of(self.start, head_end)))
        elif name == "compact":
            digests.compact()
        elif name.startswith("digest"):
            end = self.end if name == "digest all" else max(digests.whole_end, floor_block(self.end))
            digests.extend(digests_of(self.bytes_of(digests.whole_end, end), digests.whole_end), end)
        else:
            if name == "crash":
                digests.cut(digests.whole_end)
            found = decode(digests.encode_header(77 if name == "stop" else 0) + digests.encode_pages())
            assert (found.error, found.stopped_ms) == (None, 77 if name == "stop" else 0)
            assert (found.digests.start, found.digests.end) == (digests.start, digests.end)
            self.digests = found.digests


@given(st.integers(0, 3 * BLOCK_SIZE), st.lists(steps, max_size=15))
@settings(max_examples=200)
def test_digests_are_always_those_of_the_bytes(start, history):
    model = Model(start)
    for name, size in history:
        model.step(name, size)
        digests = model.digests
        assert digests.start <= digests.end <= model.end
        expected = [
            (low, high, digest(model.bytes_of(low, high))) for low, high in parts_of(digests.start, digests.end)
        ]
        found = [(block.start, block.end, block.digest) for block in digests.blocks(0, 1 << 60)]
        assert found == expected


def table(blocks, *, start=0, end=None):
    found = LogDigests.beginning_at(start)
    end = blocks * BLOCK_SIZE if end is None else end
    size = len(list(parts_of(start, end))) * DIGEST_SIZE
    found.extend(random.Random(2).randbytes(size), end)
    return found


def test_two_logs_that_begin_at_different_offsets_can_be_compared():
    """The digests of a range do not depend on what lies before the range."""
    data = random.Random(3).randbytes(6 * BLOCK_SIZE)
    whole, late = LogDigests.beginning_at(0), LogDigests.beginning_at(2 * BLOCK_SIZE)
    whole.extend(digests_of(data, 0), 6 * BLOCK_SIZE)
    late.extend(digests_of(data[2 * BLOCK_SIZE :], 2 * BLOCK_SIZE), 6 * BLOCK_SIZE)
    some = 3 * BLOCK_SIZE, 5 * BLOCK_SIZE
    assert whole.entries_of(*some) == late.entries_of(*some)
    assert len(whole.entries_of(*some)) == 2 * DIGEST_SIZE


@given(st.data())
def test_a_flipped_byte_in_the_file_gives_no_wrong_digest(data):
    """Pages before the damaged one are used; those behind it are not, because their place is unknown."""
    digests = table(2 * PAGE_DIGESTS + 9, end=(2 * PAGE_DIGESTS + 9) * BLOCK_SIZE - 17)
    content = bytearray(digests.encode_header(5) + digests.encode_pages())
    at = data.draw(st.one_of(st.integers(0, 55), st.integers(PAGE_SIZE, len(content) - 1)))
    content[at] ^= data.draw(st.integers(1, 255))
    found = decode(bytes(content))
    if at < PAGE_SIZE:
        assert found == "its header is damaged"
        return
    good = (at // PAGE_SIZE - 1) * PAGE_DIGESTS
    assert found.error == f"page {at // PAGE_SIZE} is damaged"
    assert (found.stopped_ms, found.digests.end) == (0, good * BLOCK_SIZE)
    assert found.digests.entries == digests.entries[: good * DIGEST_SIZE]


@given(st.integers(0, 3 * PAGE_SIZE))
def test_a_file_that_was_not_written_to_its_end(size):
    digests = table(PAGE_DIGESTS + 9)
    content = (digests.encode_header(5) + digests.encode_pages())[:size]
    found = decode(content)
    if size < PAGE_SIZE:
        assert isinstance(found, str)
    else:
        pages = min(size // PAGE_SIZE - 1, 2)
        assert (found.stopped_ms == 5) == (pages == 2)
        assert found.digests.end == (0, PAGE_DIGESTS, PAGE_DIGESTS + 9)[pages] * BLOCK_SIZE


def test_another_version_is_not_used():
    content = bytearray(table(1).encode_header())
    content[:8] = b"somebody"
    assert isinstance(decode(bytes(content)), str)


def test_pages_of_what_changed_are_the_pages_of_all():
    digests = table(3 * PAGE_DIGESTS)
    assert digests.encode_pages(2) == digests.encode_pages()[PAGE_SIZE:]
    assert [digests.page_of(block * BLOCK_SIZE) for block in (0, 254, 255, 510)] == [1, 1, 2, 3]

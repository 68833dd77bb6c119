"""Memory for what the log takes next."""

import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.preallocate import AHEAD_BYTES, LOW_BYTES, next_range, read_ahead
from twinlog.store.message_store import MessageStore

MIB = 1 << 20


@pytest.mark.parametrize(
    ("end", "ready", "found"),
    [
        (0, 0, (0, AHEAD_BYTES)),
        (5 * MIB, 0, (5 * MIB, 5 * MIB + AHEAD_BYTES)),  # A log that was there already.
        (AHEAD_BYTES - LOW_BYTES, AHEAD_BYTES, None),
        (AHEAD_BYTES - LOW_BYTES + 1, AHEAD_BYTES, (AHEAD_BYTES, 2 * AHEAD_BYTES - LOW_BYTES + 1)),
        (1000 * MIB, 1010 * MIB, (1010 * MIB, 1016 * MIB)),
        (1020 * MIB, 1021 * MIB, (1021 * MIB, 1024 * MIB)),  # The file ends there.
        (1020 * MIB, 1024 * MIB, None),
        (3 * MIB, 500 * MIB, None),  # A log that was cut.
    ],
)
def test_what_is_made_ready(end, ready, found):
    assert next_range(end, ready, 1024 * MIB) == found


@given(st.lists(st.integers(1, 5 * MIB), min_size=1, max_size=60), st.integers(1, 64 * MIB))
def test_each_page_once_and_before_it_is_needed(appends, size):
    end = ready = 0
    for count in appends:
        end = min(size, end + count)
        while (found := next_range(end, ready, size)) is not None:
            assert max(end, ready) == found[0] < found[1] <= size
            ready = found[1]
        assert max(end, ready) >= min(size, end + LOW_BYTES)


@pytest.fixture
def on_disk():
    """A directory whose files the kernel keeps in memory as far as it likes."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".pages-") as name:
        file = MappedFile.create(Path(name) / "hole", 0, MIB, preallocate=False)
        os.posix_fadvise(file.fd, 0, MIB, os.POSIX_FADV_WILLNEED)
        if not is_in_memory(file, 0):
            pytest.skip("this file system reads nothing ahead")
        file.delete()
        yield Path(name)


def is_in_memory(file, position):
    """Asked of mincore(2): to read would bring it there."""
    pages = ctypes.c_ubyte()
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(file.fd, MIB, offset=position) as view:
        place = ctypes.addressof(held := ctypes.c_char.from_buffer(view))
        failed = libc.mincore(ctypes.c_void_p(place), ctypes.c_size_t(1), ctypes.byref(pages))
        del held
    assert not failed, os.strerror(ctypes.get_errno())
    return bool(pages.value & 1)


async def test_the_next_pages_are_in_memory(on_disk, nursery):
    store = MessageStore(StoreConfig(root=on_disk, mapped_file_size_commit_log=64 * MIB))
    store.load()
    await nursery.start(store.run)
    store.put([put_message(body=b"one")])
    (file,) = store.commit_log.files.files
    assert not is_in_memory(file, 1 * MIB)
    for position in (1 * MIB, 15 * MIB):
        while not is_in_memory(file, position):
            await trio.sleep(0.01)
    assert not is_in_memory(file, 20 * MIB)
    for _ in range(6):
        store.put([put_message(body=bytes(1 * MIB))])
    while not is_in_memory(file, 20 * MIB):
        await trio.sleep(0.01)
    nursery.cancel_scope.cancel()
    store._release()


def test_the_thread_leaves_the_processor_to_others_in_between(tmp_path):
    with (tmp_path / "hole").open("wb+") as hole:
        hole.truncate(AHEAD_BYTES)
        began, used = time.perf_counter(), time.thread_time()
        read_ahead(hole.fileno(), 0, AHEAD_BYTES)
        assert time.perf_counter() - began > 1.5 * (time.thread_time() - used)

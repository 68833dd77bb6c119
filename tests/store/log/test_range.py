"""A stretch of the log for a thread: what is gone by the time that it is opened raises OSError, as what goes later."""

import pytest

from tests.helpers import open_store, put
from twinlog.store.log.range import LogRange


def test_bytes_of_a_file_that_is_deleted(tmp_path):
    store = open_store(tmp_path, file_size=4096)
    put(store, *(b"x" * 1000 for _ in range(8)))
    store.commit_log.files.files.pop(0).delete()
    with LogRange.open(store.commit_log, 0, store.max_offset) as bytes_:
        assert bytes_.start == 4096
        with pytest.raises(OSError, match="no file with byte 0"):
            bytes_.read(0, 100)

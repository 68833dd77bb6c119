"""Records of the slave's own log are looked for in pieces of bounded size: a thread cannot be stopped."""

from itertools import pairwise

import pytest

from tests.helpers import open_store
from twinlog.ha.compare import own_log
from twinlog.ha.compare.own_log import WINDOW, OwnReader


@pytest.mark.parametrize("search", ["first_record", "last_record"])
async def test_a_long_stretch_without_records_is_searched_in_bounded_pieces(tmp_path, monkeypatch, search):
    searched = []

    async def nothing(_reader, start, end):
        searched.append((start, end))
        return []

    monkeypatch.setattr(OwnReader, "_records", nothing)
    monkeypatch.setattr(own_log, "WINDOW_MAX", 8 * WINDOW)
    assert await getattr(OwnReader(open_store(tmp_path)), search)(10, 100 * WINDOW) is None
    searched.sort()
    assert (searched[0][0], searched[-1][1]) == (10, 100 * WINDOW)
    assert all(before[1] == after[0] for before, after in pairwise(searched))
    assert max(end - start for start, end in searched) == 8 * WINDOW

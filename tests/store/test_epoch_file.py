"""The epoch history as a file: round trip, and rejected files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.epoch_file import (
    ENTRIES_MAX,
    FIRST,
    NAME,
    EpochEntry,
    EpochId,
    decode_epochs,
    encode_epochs,
    load_epochs,
    save_epochs,
)
from twinlog.store.errors import StoreDirectoryError

HISTORY = (
    FIRST,
    EpochEntry(epoch=3, winner="10.0.0.2:10911", start_offset=100, at_ms=5, kind="failover", old="10.0.0.1:10911"),
    EpochEntry(epoch=4, winner="10.0.0.1:10911", start_offset=100, kind="forced", reason="Brand 火", lost_bytes=None),
)
steps = st.tuples(
    st.integers(1, 9),
    st.integers(0, 1 << 40),
    st.text(max_size=20),
    st.sampled_from(["first", "switchover", "failover", "forced", "restart"]),
    st.none() | st.integers(0, 1 << 60),
)


@st.composite
def histories(draw):
    """Numbers that rise, and places that do not fall."""
    epoch, start, entries = draw(st.integers(0, 5)), draw(st.integers(0, 9)), []
    for more, further, winner, kind, lost in draw(st.lists(steps, min_size=1, max_size=12)):
        epoch, start = epoch + more, start + further
        entries.append(EpochEntry(epoch=epoch, winner=winner, start_offset=start, kind=kind, lost_bytes=lost))
    return tuple(entries)


@given(histories())
def test_what_was_written_is_read(entries):
    assert decode_epochs(encode_epochs(entries)) == entries


def test_a_log_without_the_file_has_one_epoch(tmp_path):
    assert load_epochs(tmp_path / "twinlog") == (FIRST,)
    assert FIRST.id == EpochId(0, "")


def test_a_history_is_replaced(tmp_path):
    side = tmp_path / "twinlog"
    save_epochs(side, HISTORY)
    assert load_epochs(side) == HISTORY
    save_epochs(side, HISTORY[:1])
    assert load_epochs(side) == HISTORY[:1]
    assert [path.name for path in side.iterdir()] == [NAME]


def test_no_changed_byte_is_believed():
    for at in range(len(encode_epochs(HISTORY))):
        raw = bytearray(encode_epochs(HISTORY))
        raw[at] ^= 1
        with pytest.raises(ValueError, match=r"."):
            decode_epochs(bytes(raw))


def test_no_part_is_believed():
    for size in range(len(encode_epochs(HISTORY))):
        with pytest.raises(ValueError, match=r"."):
            decode_epochs(encode_epochs(HISTORY)[:size])


def test_a_damaged_file_ends_the_start(tmp_path):
    """An empty history would take what was given up for what is ours."""
    (tmp_path / NAME).write_bytes(encode_epochs(HISTORY).replace(b'"epoch": 3', b'"epoch": 2'))
    with pytest.raises(StoreDirectoryError, match="checksum is wrong"):
        load_epochs(tmp_path)


def test_a_later_version_ends_the_start(tmp_path):
    (tmp_path / NAME).write_bytes(encode_epochs(HISTORY).replace(b"epochs 1 ", b"epochs 2 "))
    with pytest.raises(StoreDirectoryError, match="version 2"):
        load_epochs(tmp_path)


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (HISTORY[1], FIRST),
        (HISTORY[1], HISTORY[1]),
        (FIRST, EpochEntry(epoch=1, winner="a", start_offset=5), EpochEntry(epoch=2, winner="b", start_offset=4)),
        (EpochEntry(epoch=-1, winner="a", start_offset=0),),
        (EpochEntry(epoch=1, winner="a", start_offset=-1),),
    ],
)
def test_what_is_no_history_is_not_saved(tmp_path, entries):
    with pytest.raises(ValueError, match=r"."):
        save_epochs(tmp_path, entries)
    assert not list(tmp_path.iterdir())


def test_the_oldest_epochs_are_forgotten(tmp_path):
    """The very first goes with them: a list that begins with it is known to be whole."""
    entries = (FIRST, *(EpochEntry(epoch=n, winner="a", start_offset=n) for n in range(1, ENTRIES_MAX + 5)))
    save_epochs(tmp_path, entries)
    assert load_epochs(tmp_path) == entries[-ENTRIES_MAX:]

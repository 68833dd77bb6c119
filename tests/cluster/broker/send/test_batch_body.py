"""The body of a batch request: whole messages, or an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.broker.sending import inner_message
from twinlog.cluster.broker.send.requests import split_batch

inner = st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=60), st.binary(max_size=60))
batches = st.lists(inner, max_size=5)


@given(batches, st.booleans())
def test_messages_come_out_as_they_went_in(messages, as_view):
    data = b"".join(inner_message(*message) for message in messages)
    found = split_batch(memoryview(data) if as_view else data)
    assert [(flag, bytes(body), properties) for flag, body, properties in found] == messages


@given(batches.filter(bool), st.data())
def test_a_part_is_an_error_unless_it_ends_between_messages(messages, data):
    parts = [inner_message(*message) for message in messages]
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, parts[:n])) for n in range(len(parts) + 1)]
    if cut in ends:
        assert len(split_batch(whole[:cut])) == ends.index(cut)
    else:
        with pytest.raises(ValueError, match=f"message {sum(end <= cut for end in ends) - 1} of the batch"):
            split_batch(whole[:cut])


@given(batches.filter(bool), st.data())
def test_no_bytes_make_it_fail_otherwise(messages, data):
    raw = bytearray(b"".join(inner_message(*message) for message in messages))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = split_batch(bytes(raw))
    except ValueError:
        return
    assert sum(22 + len(body) + len(properties) for _, body, properties in found) == len(raw)


@pytest.mark.parametrize("at", [0, 16, 20 + 5])
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"])
def test_lengths_that_lie(at, value):
    raw = bytearray(inner_message(0, b"hello", b"a\x01b"))
    raw[at : at + len(value)] = value
    with pytest.raises(ValueError):
        split_batch(bytes(raw))

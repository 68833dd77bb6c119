"""Pulled records as rows: bodies inflated, damage told, ids for messages without one."""

import zlib

import pytest

from tests.cluster.pipeline.topics.fake_api import QUEUE, record
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.cluster.pipeline.topics.rows import SCHEMA, Pulled, RowMaker
from twinlog.store.record.message import ANY_V6, Message, encode_message


def made(*pieces: bytes, tags=()):
    """Rows of pieces, and problems."""
    maker = RowMaker(QUEUE, SCHEMA, InflateLimits(), tags)
    rows, problems = [], []
    for batch, told in maker.batches([Pulled.of(piece, 0, 1 << 40) for piece in pieces]):
        assert batch.schema.equals(SCHEMA)
        rows += batch.to_pylist(maps_as_pydicts="strict")
        problems += told
    return rows, problems


def test_several_pieces_make_one_batch():
    rows, problems = made(record(3) + record(4, b""), record(9, b"x" * 3000))
    assert [(row["queueOffset"], row["value"]) for row in rows] == [(3, b"body"), (4, b""), (9, b"x" * 3000)]
    assert [row["physicalOffset"] for row in rows] == [3000, 4000, 9000]
    assert (rows[0]["topic"], rows[0]["broker"], rows[0]["queueId"]) == ("T", "b", 0)
    assert rows[0]["messageId"] == "7F00000100000000" + f"{3000:016X}"
    assert problems == []


def test_bodies_are_inflated_and_what_does_not_inflate_is_told():
    rows, problems = made(record(0, zlib.compress(b"long" * 99), sys_flag=1), record(1, b"no zlib", sys_flag=1))
    assert [row["value"] for row in rows] == [b"long" * 99, b"no zlib"]
    assert rows[0]["valueProblem"] is None
    assert "zlib" in rows[1]["valueProblem"]
    assert [row["sysFlag"] for row in rows] == [1, 1]
    assert problems == []


def test_hosts_of_ipv6():
    host = bytes(15) + b"\x01" + (10911).to_bytes(4)
    message = Message("T", 0, b"", b"", queue_offset=5, phy_offset=7, sys_flag=ANY_V6, born_host=host, store_host=host)
    rows, _ = made(encode_message(message), record(6))
    assert [row["storeHost"] for row in rows] == ["[::1]:10911", "127.0.0.1:0"]
    assert rows[0]["messageId"] == host.hex().upper() + f"{7:016X}"
    assert len(rows[0]["messageId"]) == 56


@pytest.mark.parametrize(
    ("at", "word"),
    [(90, "does not match its CRC"), (87, "lengths that do not add up"), (84, "lengths that do not add up")],
)
def test_a_damaged_record_is_left_out_and_named(at, word):
    broken = bytearray(record(1, b"12345"))
    broken[at] ^= 0x41
    rows, problems = made(record(0) + bytes(broken) + record(2))
    assert [row["queueOffset"] for row in rows] == [0, 2]
    assert len(problems) == 1
    assert "message 1 of queue 0 of T on b" in problems[0]
    assert word in problems[0]


def test_nothing_but_damage():
    broken = bytearray(record(1, b"12345"))
    broken[90] ^= 1
    rows, problems = made(bytes(broken))
    assert rows == []
    assert len(problems) == 1


def test_what_lies_between_records_is_a_gap():
    piece = Pulled.of(record(3) + record(4) + record(8) + record(12), 2, 10)
    assert piece.offsets == [3, 4, 8]
    assert list(piece.gaps(2, 10)) == [(2, 3), (5, 8), (9, 10)]
    assert list(Pulled.of(b"", 2, 10).gaps(2, 10)) == [(2, 10)]
    assert list(Pulled.of(record(2), 2, 3).gaps(2, 3)) == []

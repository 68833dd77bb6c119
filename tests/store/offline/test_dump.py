"""Messages in words."""

import zlib
from base64 import b64decode

import lz4.frame
import pytest

from twinlog.cluster.cli.log.dump import show_messages
from twinlog.store.offline.dump import described
from twinlog.store.record.compression import zstd_library
from twinlog.store.record.message import Message, body_crc


def message(body: bytes, sys_flag: int = 0, properties: bytes = b"") -> Message:
    return Message(
        topic="T", queue_id=1, body=body, body_crc=body_crc(body), sys_flag=sys_flag, properties_raw=properties
    )


@pytest.mark.parametrize("kind", [0x000, 0x300])
def test_a_zlib_body_is_decompressed(kind):
    found = described(message(zlib.compress(b"hello " * 100), 0x1 | kind), with_body=True)
    assert (found.compression, found.body, found.body_base64) == ("zlib", "hello " * 100, None)
    assert found.body_size < 600


@pytest.mark.parametrize(
    ("kind", "name", "compress"), [(0x100, "lz4", lz4.frame.compress), (0x200, "zstd", zstd_library().compress)]
)
def test_lz4_and_zstd_bodies_are_decompressed(kind, name, compress):
    found = described(message(compress(b"hello " * 100), 0x1 | kind), with_body=True)
    assert (found.compression, found.body, found.body_base64) == (name, "hello " * 100, None)
    assert (found.body_size < 600, found.body_problem) == (True, None)
    no_text = described(message(compress(b"\xff" * 1000), 0x1 | kind), with_body=True)
    assert (no_text.body, b64decode(no_text.body_base64), no_text.body_problem) == (None, b"\xff" * 1000, None)


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [(0x100, "lz4", "it is no lz4: "), (0x200, "zstd", "it is no zstd: "), (0x700, "unknown", "compression 7 is not")],
)
def test_a_body_that_cannot_be_decompressed_is_given_as_it_is_with_the_reason(kind, name, why, capsys):
    found = described(message(b"\x00\x01", 0x1 | kind), with_body=True)
    assert (found.compression, found.body) == (name, None)
    assert b64decode(found.body_base64) == b"\x00\x01"
    assert found.body_problem.startswith(why)
    show_messages([found], "wide", with_body=True)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"  <not decompressed, {name}, 2 bytes as stored: {why}")
    assert last.endswith("> 00 01")


@pytest.mark.parametrize("body", [b"no zlib at all", zlib.compress(b"x" * 1000)[:-4]])
def test_a_body_that_is_not_what_its_flag_says_is_given_as_it_is(body):
    found = described(message(body, 0x1), with_body=True)
    assert found.body is None
    assert b64decode(found.body_base64) == body
    assert found.body_problem.startswith("it is no zlib: ")


def test_a_body_that_is_no_text():
    found = described(message(b"\xff\xfe"), with_body=True)
    assert (found.body, b64decode(found.body_base64)) == (None, b"\xff\xfe")
    assert described(message(b"x")).body is None


@pytest.mark.parametrize(("flag", "word"), [(0, None), (0x4, "prepared"), (0x8, "commit"), (0xC, "rollback")])
def test_transactions_have_names(flag, word):
    assert described(message(b"", flag)).transaction == word


def test_properties_have_their_own_fields():
    found = described(message(b"", properties=b"KEYS\x01a b\x02UNIQ_KEY\x01id\x02TAGS\x01t\x02mine\x011"))
    assert (found.keys, found.message_id, found.tags) == ("a b", "id", "t")
    assert found.properties == {"KEYS": "a b", "UNIQ_KEY": "id", "TAGS": "t", "mine": "1"}

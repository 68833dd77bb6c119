"""Messages in words."""

import zlib
from base64 import b64decode

import pytest

from store.message import Message, body_crc
from store.offline.dump import described


def message(body: bytes, sys_flag: int = 0, properties: bytes = b"") -> Message:
    return Message(
        topic="T", queue_id=1, body=body, body_crc=body_crc(body), sys_flag=sys_flag, properties_raw=properties
    )


@pytest.mark.parametrize("kind", [0x000, 0x300])
def test_a_zlib_body_is_decompressed(kind):
    found = described(message(zlib.compress(b"hello " * 100), 0x1 | kind), with_body=True)
    assert (found.compression, found.body, found.body_base64) == ("zlib", "hello " * 100, None)
    assert found.body_size < 600


@pytest.mark.parametrize(("kind", "name"), [(0x100, "lz4"), (0x200, "zstd"), (0x700, "unknown")])
def test_another_body_is_said_to_be_compressed_and_given_as_it_is(kind, name):
    found = described(message(b"\x00\x01", 0x1 | kind), with_body=True)
    assert (found.compression, found.body) == (name, None)
    assert b64decode(found.body_base64) == b"\x00\x01"


@pytest.mark.parametrize("body", [b"no zlib at all", zlib.compress(b"x" * 1000)[:-4]])
def test_a_body_that_is_not_what_its_flag_says_is_given_as_it_is(body):
    found = described(message(body, 0x1), with_body=True)
    assert found.body is None
    assert b64decode(found.body_base64) == body


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

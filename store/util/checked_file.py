"""Small side files as text: one line `twinlog-NAME VERSION CRC32HEX`, then one JSON value that the checksum covers.

A lost promised epoch is a lost vote, so an unreadable file is an error here, never taken for an empty one.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import orjson

from twinlog.store.errors import StoreDirectoryError

T = TypeVar("T")


def encode_checked(name: str, version: int, value: object) -> bytes:
    """The reverse of decode_checked."""
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return b"twinlog-%s %d %08x\n" % (name.encode(), version, _sum(name, version, body)) + body


def decode_checked(name: str, version: int, raw: bytes) -> object:
    """The value in a file. Raises ValueError when it is of another kind or version, or damaged."""
    head, _, body = raw.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[0] != b"twinlog-" + name.encode():
        raise ValueError(f"it does not begin with twinlog-{name}")
    if words[1] != b"%d" % version:
        raise ValueError(f"version {words[1].decode('ascii', 'replace')} is not known here, only {version}")
    if words[2] != b"%08x" % _sum(name, version, body):
        raise ValueError("its checksum is wrong")
    value: object = orjson.loads(body)
    return value


def _sum(name: str, version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"twinlog-%s %d" % (name.encode(), version)))


_VOTES = (
    "It holds this member's votes, which cannot be guessed. "
    "Next: restore the file; or, with another member as master (twinlog failover), empty this store: "
    "the member then follows that master from the beginning"
)


def load_checked(path: Path, decode: Callable[[bytes], T], advice: str = _VOTES) -> T | None:
    """The decoded file; None when there is none. Raises StoreDirectoryError, which ends a start, when it cannot be read."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreDirectoryError(f"{path} cannot be read: {error}. {advice}") from error

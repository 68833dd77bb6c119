"""A note that the index ended before the log did when the store was closed: ROOT/twinlog/index-behind.

RocketMQ, should it go on with the directory, adds its messages behind those of the index and leaves a hole there that nobody
could see later. The note says where it begins, so that the index is cut there and made anew.

    8 bytes `twlgindx` | i32 version, 1 | i64 log offset | u64 xxh3_64 of all before. Big endian.
"""

from pathlib import Path
from struct import Struct

from xxhash import xxh3_64_intdigest

from twinlog.store.util.sync import write_durably

_MAGIC, _VERSION = b"twlgindx", 1
_LAYOUT, _DIGEST = Struct(">8siq"), Struct(">Q")
assert (_LAYOUT.size, _DIGEST.size) == (20, 8)


def encode_note(phy_offset: int) -> bytes:
    """The note: messages at or behind an offset may be missing in the index."""
    data = _LAYOUT.pack(_MAGIC, _VERSION, phy_offset)
    return data + _DIGEST.pack(xxh3_64_intdigest(data))


def decode_note(raw: bytes) -> int | None:
    """Where messages begin to be missing; None for bytes that are no such note."""
    data, digest = raw[: _LAYOUT.size], raw[_LAYOUT.size :]
    if len(data) < _LAYOUT.size or digest != _DIGEST.pack(xxh3_64_intdigest(data)):
        return None
    magic, version, phy_offset = _LAYOUT.unpack(data)
    return phy_offset if (magic, version) == (_MAGIC, _VERSION) else None


def save_note(path: Path, phy_offset: int) -> None:
    """Write the note. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_note(phy_offset))


def lower_note(path: Path, phy_offset: int) -> None:
    """Let the note, which is made if there is none, say an offset or an earlier one, durably. Raises OSError."""
    noted = load_note(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, encode_note(phy_offset if noted is None else min(phy_offset, noted)))


def load_note(path: Path) -> int | None:
    """What the note says; 0 when it cannot be read, for then anything may be missing. Raises OSError."""
    if not path.is_file():
        return None
    phy_offset = decode_note(path.read_bytes())
    return 0 if phy_offset is None else phy_offset

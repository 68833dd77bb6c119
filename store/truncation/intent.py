"""The intent to cut a log, ROOT/twinlog/truncate, as bytes and as an object.

    8 bytes magic | u32 version | u32 kind: 1 cut, 2 begin anew
    i64 offset | i64 old end | i64 last store time | i64 when
    u16 n, n bytes name of the directory that keeps what is cut | u16 n, n bytes why
    u64 xxh3 of all bytes before

Big endian; offsets in the log count bytes, times are ms. While the intent exists, the log ends at `offset` (kind 2: it is
empty), whatever its files hold: a start finishes the cut before it reads them.
"""

from enum import IntEnum
from pathlib import Path
from struct import Struct
from struct import error as StructError

from attrs import frozen
from xxhash import xxh3_64_intdigest

from twinlog.store.errors import SideFileError, StoreDirectoryError

NAME = "truncate"
MAGIC, VERSION = b"TWLTRUNC", 1
_FIELDS, _SIZE, _SUM = Struct(">8sIIqqqq"), Struct(">H"), Struct(">Q")
assert _FIELDS.size == 48
_WHY_MAX = 1000  # Bytes.


class CutKind(IntEnum):
    """The kind of a cut."""

    CUT = 1
    BEGIN_ANEW = 2


@frozen
class TruncateIntent:
    """Bytes `offset` to `old_end` of the log go; `last_timestamp` is the store time of the newest message that stays, 0: none.

    `kept_in` names the directory in twinlog/divergent/ that has a copy of them.
    """

    kind: CutKind
    offset: int
    old_end: int
    last_timestamp: int
    when_ms: int
    kept_in: str
    why: str


def encode_intent(intent: TruncateIntent) -> bytes:
    """The reverse of decode_intent."""
    name, why = intent.kept_in.encode(), intent.why.encode()[:_WHY_MAX]
    numbers = (intent.offset, intent.old_end, intent.last_timestamp, intent.when_ms)
    fields = _FIELDS.pack(MAGIC, VERSION, intent.kind, *numbers)
    data = b"".join((fields, _SIZE.pack(len(name)), name, _SIZE.pack(len(why)), why))
    return data + _SUM.pack(xxh3_64_intdigest(data))


def decode_intent(raw: bytes) -> TruncateIntent:
    """The intent in a file. Raises SideFileError when the bytes are damaged, or of an unknown version."""
    try:
        data, (digest,) = raw[: -_SUM.size], _SUM.unpack(raw[-_SUM.size :])
        magic, version, kind, offset, old_end, last_timestamp, when_ms = _FIELDS.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise SideFileError(f"{magic!r}, version {version}, is not known here")
        if digest != xxh3_64_intdigest(data):
            raise SideFileError("its checksum is wrong")
        name, at = _text(data, _FIELDS.size)
        why, at = _text(data, at)
        return TruncateIntent(CutKind(kind), offset, old_end, last_timestamp, when_ms, name, why)
    except (StructError, ValueError) as error:
        raise SideFileError(f"it is not whole: {error}") from error


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _SIZE.unpack_from(data, at)
    end = at + _SIZE.size + size
    return data[at + _SIZE.size : end].decode("utf-8", "ignore"), end


def load_intent(side: Path) -> TruncateIntent | None:
    """The note of a cut that is not finished. Raises StoreDirectoryError when it is damaged, OSError."""
    path = side / NAME
    try:
        return decode_intent(path.read_bytes())
    except FileNotFoundError:
        return None
    except SideFileError as error:
        raise StoreDirectoryError(
            f"{path} says that the log was being cut, but not where: {error}. Compare the log with its master's "
            "(log diff), and remove the file"
        ) from error

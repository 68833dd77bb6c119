"""Codec of remoting frames: bytes in, commands out, and back. No socket, no clock.

    total i32 | serialize_type u8, header_size u24 | header | body        total counts the bytes after itself

serialize_type 0: the header is a JSON object, written with its keys sorted, as fastjson does.
serialize_type 1: code i16 | language i8 | version i16 | opaque i32 | flag i32
                  | remark_size i32, remark | ext_size i32, repeated: key_size i16, key, value_size i32, value
Big endian, text is UTF-8. Responses come in any order; `opaque` pairs them with their requests.
Source: RemotingCommand.java, RocketMQSerializable.java, NettyDecoder.java (RocketMQ 4.9.8).
"""

import struct
from struct import Struct
from typing import Any, NamedTuple

import orjson
from attrs import define, field

from twinlog.cluster.remoting.errors import RemotingProtocolError

JSON, ROCKETMQ = 0, 1
RESPONSE, ONEWAY = 1, 2  # Bits of `flag`.
VERSION = 409  # V4_9_8. Peers of 4.9 then take their 4.9 branch everywhere, and mqadmin shows a name it knows.
FRAME_SIZE_MAX = 16_777_216  # With the length word, as com.rocketmq.remoting.frameMaxLength counts.
HEADER_SIZE_MAX = 262_144  # Holds the longest header that RocketMQ stores a message of: 32,767 property bytes, escaped.

LANGUAGES = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"]
LANGUAGES += ["NODE_JS"]  # 5.x. The number of a language is its index.
_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}

_WORD, _FRAME_HEAD = Struct(">I"), Struct(">II")
_FIXED, _SIZE, _KEY_SIZE = Struct(">hbhiii"), Struct(">i"), Struct(">h")
assert (_FRAME_HEAD.size, _FIXED.size, _SIZE.size, _KEY_SIZE.size) == (8, 17, 4, 2)
_WORD_SIZE = 4
OPAQUE_AT = 5  # In a binary header.
_loads, _join = orjson.loads, "".join
_BINARY_CODE_MAX = 32_767


def _repr_size(data: bytes | bytearray | memoryview) -> str:
    return f"<{len(data)} bytes>"


@define
class RemotingCommand:
    """A request, or the response to one: header fields and body.

    `ext` is RocketMQ's extFields ("custom header"): None is left out on the wire, {} is written.
    A decoded body is a view of the frame it came in.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] | None = None
    body: bytes | memoryview = field(default=b"", repr=_repr_size)
    remark: str | None = None
    version: int = VERSION
    language: str = "JAVA"
    serialize_type: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)

    def copy(self, opaque: int, flag: int) -> "RemotingCommand":
        """The same with another number and flag; a tenth of attrs.evolve's time."""
        return RemotingCommand(
            self.code,
            opaque,
            flag,
            self.ext,
            self.body,
            self.remark,
            self.version,
            self.language,
            self.serialize_type,
        )

    @staticmethod
    def response_to(
        request: "RemotingCommand",
        code: int,
        *,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> "RemotingCommand":
        """The response to `request`, in its serialization."""
        serialize_type = request.serialize_type
        return RemotingCommand(code, request.opaque, RESPONSE, ext, body, remark, VERSION, "JAVA", serialize_type)


def decode(frame: memoryview | bytes | bytearray) -> RemotingCommand:
    """Decode one frame without its length word, as FrameReader returns it.

    Raises RemotingProtocolError for a header that is longer than the frame, of an unknown type, or malformed.
    """
    if len(frame) < _WORD_SIZE:
        raise RemotingProtocolError(f"frame of {len(frame)} bytes has no header")
    (word,) = _WORD.unpack_from(frame)
    end = _WORD_SIZE + (word & 0xFFFFFF)
    if end > len(frame):
        raise RemotingProtocolError(f"header of {end - _WORD_SIZE} bytes in a frame of {len(frame)}")
    if word < 0x01000000:  # JSON
        return _decode_json(frame[_WORD_SIZE:end], frame[end:])
    if word >> 24 == ROCKETMQ:
        return _decode_binary(bytes(frame[_WORD_SIZE:end]), frame[end:])
    raise RemotingProtocolError(f"serialize type {word >> 24} is unknown")


def _decode_json(data: memoryview | bytes | bytearray, body: Any) -> RemotingCommand:
    try:
        header = _loads(data)
        get = header.get
        code, opaque, flag, version = get("code", 0), get("opaque", 0), get("flag", 0), get("version", 0)
        ext, remark, language = get("extFields"), get("remark"), get("language", "OTHER")
        if (code | opaque | flag | version) >> 31:  # One is negative, or no int32.
            raise TypeError
        if ext is not None:
            _join(ext.values())  # The quickest check that all of them are strings.
        if type(language) is not str or not (remark is None or type(remark) is str):
            raise TypeError
    except orjson.JSONDecodeError as error:
        raise RemotingProtocolError(f"header is not JSON: {error}") from None
    except (TypeError, AttributeError):
        return _decode_odd_json(header, body)
    return RemotingCommand(code, opaque, flag, ext, body, remark, version, language, JSON)


def _decode_odd_json(header: object, body: Any) -> RemotingCommand:
    """Slow path for headers that differ from what Java writes. Raises RemotingProtocolError for malformed ones."""
    if not isinstance(header, dict):
        raise RemotingProtocolError(f"header is a JSON {type(header).__name__}, not an object")
    remark, language, ext = header.get("remark"), header.get("language"), header.get("extFields")
    if not (remark is None or isinstance(remark, str)):
        raise RemotingProtocolError(f"header's remark is not a string: {remark!r:.80}")
    return RemotingCommand(
        _int32(header, "code"),
        _int32(header, "opaque"),
        _int32(header, "flag"),
        None if ext is None else _texts(ext),
        body,
        remark,
        _int32(header, "version"),
        language if isinstance(language, str) else "OTHER",
        JSON,
    )


def _int32(header: dict[str, Any], key: str) -> int:
    """Read an int as fastjson does: null is 0."""
    value = header.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or not -0x80000000 <= value <= 0x7FFFFFFF:
        raise RemotingProtocolError(f"header's {key} is not a 32-bit integer: {value!r:.80}")
    return int(value)


def _texts(ext: object) -> dict[str, str]:
    """Turn all fields into text: clients in other languages write numbers and booleans as such. null: a field left out."""
    if not isinstance(ext, dict):
        raise RemotingProtocolError(f"header's extFields is a {type(ext).__name__}, not an object")
    try:
        return {
            key: value if isinstance(value, str) else orjson.dumps(value).decode()
            for key, value in ext.items()
            if value is not None
        }
    except orjson.JSONEncodeError as error:  # Nested deeper than orjson writes, though not than it reads.
        raise RemotingProtocolError(f"header's extFields cannot be text: {error}") from None


def _decode_binary(data: bytes, body: Any) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        at = _FIXED.size
        if remark_size < 0 or at + remark_size > len(data):
            raise RemotingProtocolError(f"remark of {remark_size} bytes in a header of {len(data)}")
        remark = data[at : at + remark_size].decode() if remark_size else None
        at += remark_size
        (ext_size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if ext_size < 0 or at + ext_size > len(data):
            raise RemotingProtocolError(f"extFields of {ext_size} bytes in a header of {len(data)}")
        ext = _decode_binary_ext(data, at, at + ext_size) if ext_size else None
    except (struct.error, IndexError):
        raise RemotingProtocolError(f"binary header of {len(data)} bytes ends early") from None
    except UnicodeDecodeError as error:
        raise RemotingProtocolError(f"binary header is not UTF-8: {error}") from None
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return RemotingCommand(code, opaque, flag, ext, body, remark, version, name, ROCKETMQ)


def _decode_binary_ext(data: bytes, at: int, end: int) -> dict[str, str]:
    size_at = _SIZE.unpack_from
    ext = {}
    while at < end:
        key_end = at + 2 + (data[at] << 8 | data[at + 1])  # A negative size is too large this way.
        (size,) = size_at(data, key_end)
        value_end = key_end + 4 + size
        if size < 0 or value_end > end:
            raise RemotingProtocolError(f"field at byte {at} of a header does not fit the {end} bytes of its fields")
        ext[data[at + 2 : key_end].decode()] = data[key_end + 4 : value_end].decode()
        at = value_end
    return ext


class BinaryFields(NamedTuple):
    """Places in a binary header: where its fields begin, and of each its key, and where its value begins and ends."""

    start: int
    values: list[tuple[str, int, int]]


def binary_fields(header: bytes) -> BinaryFields:
    """The places of the fields of a header that decode() has taken."""
    at = start = _FIXED.size + _FIXED.unpack_from(header)[-1] + _SIZE.size
    values = []
    while at < len(header):
        key_end = at + _KEY_SIZE.size + _KEY_SIZE.unpack_from(header, at)[0]
        value_start = key_end + _SIZE.size
        value_end = value_start + _SIZE.unpack_from(header, key_end)[0]
        values.append((header[at + _KEY_SIZE.size : key_end].decode(), value_start, value_end))
        at = value_end
    return BinaryFields(start, values)


def binary_field(key: str) -> bytes:
    """The beginning of a field, up to the length of its value."""
    data = _utf8(key)
    return _KEY_SIZE.pack(len(data)) + data


def encode(command: RemotingCommand) -> bytes:
    """Encode a whole frame. Raises RemotingProtocolError when it is too long for peers, or a field does not fit."""
    body = command.body
    return b"".join((encode_header(command, len(body)), body))


def encode_header(command: RemotingCommand, body_size: int) -> bytes:
    """Encode a frame up to its body, for bodies that are sent separately. Raises RemotingProtocolError as `encode` does."""
    if command.serialize_type == JSON:
        header = encode_json(command)
    elif command.serialize_type == ROCKETMQ:
        header = encode_binary(command)
    else:
        raise RemotingProtocolError(f"serialize type {command.serialize_type} is unknown")
    return with_lengths(header, command.serialize_type, body_size)


def with_lengths(header: bytes, serialize_type: int, body_size: int) -> bytes:
    """Put the length words before an encoded header. Raises RemotingProtocolError when the frame is too long for peers."""
    header_size = len(header)
    total = _WORD_SIZE + header_size + body_size
    if total + _WORD_SIZE > FRAME_SIZE_MAX:
        raise RemotingProtocolError(f"frame of {total + _WORD_SIZE} bytes, at most {FRAME_SIZE_MAX} are allowed")
    return _FRAME_HEAD.pack(total, serialize_type << 24 | header_size) + header


def encode_json(command: RemotingCommand) -> bytes:
    """Encode the header as JSON."""
    header: dict[str, Any] = {"code": command.code}  # In alphabetical order, as fastjson writes them.
    if command.ext is not None:
        header["extFields"] = command.ext
    header["flag"] = command.flag
    header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    try:
        return orjson.dumps(header)
    except TypeError:  # A lone surrogate, for example from a file name. Java writes a question mark, too.
        if command.remark is not None:
            header["remark"] = _utf8(command.remark).decode()
        if command.ext is not None:
            header["extFields"] = {_utf8(key).decode(): _utf8(value).decode() for key, value in command.ext.items()}
        return orjson.dumps(header)


def encode_binary(command: RemotingCommand) -> bytes:
    """Encode the header in RocketMQ's own form. Raises RemotingProtocolError for what does not fit it."""
    if command.code > _BINARY_CODE_MAX:
        raise RemotingProtocolError(f"code {command.code} does not fit the binary header, use JSON")
    remark = _utf8(command.remark) if command.remark else b""
    try:
        fields: list[bytes] = []
        for key, value in (command.ext or {}).items():
            key_data, value_data = _utf8(key), _utf8(value)
            fields += (_KEY_SIZE.pack(len(key_data)), key_data, _SIZE.pack(len(value_data)), value_data)
        ext = b"".join(fields)
        language = _LANGUAGE_NUMBERS.get(command.language, _LANGUAGE_NUMBERS["OTHER"])
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
        return b"".join((fixed, remark, _SIZE.pack(len(ext)), ext))
    except struct.error as error:
        raise RemotingProtocolError(f"command {command.code} does not fit the binary header: {error}") from None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


@define
class FrameReader:
    """Cuts a byte stream into frames. Holds at most the part of one frame that has arrived so far."""

    _part: bytearray = field(factory=bytearray, init=False, repr=_repr_size)  # Of a partial frame, with length word.
    _part_size: int = field(default=0, init=False)  # Size of that frame in all; 0 while its head is incomplete.

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Take received bytes; return the frames that are now complete, oldest first, without their length words.

        Frames that lie completely in `data` are views of it, valid until the caller reuses the buffer.
        Raises RemotingProtocolError, before any of it is kept, for a frame above FRAME_SIZE_MAX, a length below
        4, or a header that is longer than its frame or HEADER_SIZE_MAX. Drop the connection then.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        frames: list[bytes | memoryview] = []
        if self._part:
            at = self._complete(view, frames)
        while end - at >= _FRAME_HEAD.size:
            size = self._frame_size(*_FRAME_HEAD.unpack_from(view, at))
            if end - at < size:
                break
            frames.append(view[at + _WORD_SIZE : at + size])
            at += size
        if at < end:
            self._keep(view[at:])
        return frames

    @property
    def buffered(self) -> int:
        """Bytes of the partial frame; 0 between frames."""
        return len(self._part)

    def _complete(self, view: memoryview, frames: list[bytes | memoryview]) -> int:
        """Add to the partial frame; return how many bytes of `view` that took."""
        taken = 0
        if not self._part_size:
            taken = _FRAME_HEAD.size - len(self._part)
            head = bytes(self._part) + view[:taken]
            self._check_length(head)
            if len(head) < _FRAME_HEAD.size:
                self._part += view
                return len(view)
            self._part_size = self._frame_size(*_FRAME_HEAD.unpack(head))
            self._part += view[:taken]
        missing = self._part_size - len(self._part)
        self._part += view[taken : taken + missing]
        assert _FRAME_HEAD.size <= len(self._part) <= self._part_size, (len(self._part), self._part_size)
        if len(self._part) == self._part_size:
            frames.append(memoryview(self._part)[_WORD_SIZE:])
            self._part, self._part_size = bytearray(), 0
        return min(taken + missing, len(view))

    def _keep(self, rest: memoryview) -> None:
        """Start a partial frame."""
        assert not self._part
        self._check_length(rest)
        if len(rest) >= _FRAME_HEAD.size:
            self._part_size = self._frame_size(*_FRAME_HEAD.unpack_from(rest))
        self._part += rest

    def _check_length(self, head: bytes | memoryview) -> None:
        if len(head) >= _WORD_SIZE:
            self._frame_size(_WORD.unpack_from(head)[0], 0)

    def _frame_size(self, total: int, word: int) -> int:
        """Size of the frame with its length word. Raises RemotingProtocolError for lengths that are not allowed."""
        header_size = word & 0xFFFFFF
        if _WORD_SIZE + header_size <= total <= FRAME_SIZE_MAX - _WORD_SIZE and header_size <= HEADER_SIZE_MAX:
            return _WORD_SIZE + total
        if total >= 0x80000000 or total < _WORD_SIZE:
            raise RemotingProtocolError(f"frame length {total - (total >> 31 << 32)} is impossible")
        if total > FRAME_SIZE_MAX - _WORD_SIZE:
            raise RemotingProtocolError(f"frame of {total + _WORD_SIZE} bytes, at most {FRAME_SIZE_MAX} are allowed")
        if _WORD_SIZE + header_size > total:
            raise RemotingProtocolError(f"header of {header_size} bytes in a frame of {total}")
        raise RemotingProtocolError(f"header of {header_size} bytes, at most {HEADER_SIZE_MAX} are allowed")

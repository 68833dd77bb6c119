"""The body of a batch request: messages one after the other.

    i32 size of this one | i32 magic, 0 | i32 CRC, 0 | i32 flag | i32 n, n bytes body | i16 n, n bytes properties

Big endian. Source: MessageDecoder.encodeMessages; RocketMQ 4.9.8.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

_HEAD, _PROPERTIES_SIZE = Struct(">iiiii"), Struct(">h")
assert (_HEAD.size, _PROPERTIES_SIZE.size) == (20, 2)


class InnerMessage(NamedTuple):
    """One message of a batch."""

    flag: int
    body: memoryview
    properties: bytes


def split_batch(body: bytes | memoryview) -> list[InnerMessage]:
    """The messages in order. Raises ValueError when the body is not made of whole messages."""
    data = memoryview(body)
    messages: list[InnerMessage] = []
    at = 0
    try:
        while at < len(data):
            size, _magic, _crc, flag, body_size = _HEAD.unpack_from(data, at)
            body_end = at + _HEAD.size + body_size
            (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_end)
            end = body_end + _PROPERTIES_SIZE.size + properties_size
            if body_size < 0 or properties_size < 0 or end != at + size or end > len(data):
                raise ValueError(f"message {len(messages)} of the batch has sizes that do not add up")
            properties = bytes(data[body_end + _PROPERTIES_SIZE.size : end])
            messages.append(InnerMessage(flag, data[at + _HEAD.size : body_end], properties))
            at = end
    except StructError as error:
        raise ValueError(f"message {len(messages)} of the batch ends early") from error
    return messages

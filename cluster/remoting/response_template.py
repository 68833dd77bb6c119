"""Templates of frequent responses: the header is encoded once, in JSON and in RocketMQ's form, and only its values are filled in.

This saves a dict and its encoding for each response.
"""

from collections.abc import Mapping, Sequence
from struct import Struct

from attrs import define, field, frozen

from twinlog.cluster.remoting.command import (
    JSON,
    OPAQUE_AT,
    RemotingCommand,
    binary_field,
    encode_binary,
    encode_json,
    with_lengths,
)

_INT = Struct(">i")


@define(eq=False)
class ResponseTemplate:
    """A response with this code and remark, whose extFields are `names` with values and the `constants`.

    names: for each the format of its value as Python's bytes have it: %d, %016X, or %b for bytes without JSON escapes.
    """

    code: int
    remark: str | None
    names: Mapping[str, str]
    constants: dict[str, str] = field(factory=dict)
    _format: bytes = field(init=False)  # Of all values, in the order of `names`, and of opaque.
    # In the binary form: what is before opaque and behind it up to the fields, each field up to its value's length, constants.
    _before: bytes = field(init=False)
    _behind: bytes = field(init=False)
    _fields: tuple[tuple[bytes, bytes], ...] = field(init=False)
    _constants: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        marks = {name: f"@{name}@" for name in self.names}
        response = RemotingCommand(self.code, 0, 1, {**marks, **self.constants}, remark=self.remark)
        text = encode_json(response).decode().replace("%", "%%").replace('"opaque":0', '"opaque":%d')
        for name, mark in marks.items():
            text = text.replace(mark, self.names[name])
        self._format = text.encode()
        bare = encode_binary(RemotingCommand(self.code, 0, 1, None, remark=self.remark))
        self._before, self._behind = bare[:OPAQUE_AT], bare[OPAQUE_AT + _INT.size : -_INT.size]
        self._fields = tuple((binary_field(name), how.encode()) for name, how in self.names.items())
        constants = RemotingCommand(self.code, 0, 1, self.constants, remark=self.remark)
        self._constants = encode_binary(constants)[len(bare) :]

    def ext(self, values: Sequence[int | bytes]) -> dict[str, str]:
        """The extFields with these values."""
        texts = ((how.encode() % (value,)).decode() for how, value in zip(self.names.values(), values, strict=True))
        return {**dict(zip(self.names, texts, strict=True)), **self.constants}

    def head(self, command: RemotingCommand, values: tuple[int | bytes, ...], body_size: int = 0) -> bytes:
        """Encode the frame up to its body. Values are in the order of `names`.

        Raises RemotingProtocolError when the frame is too long for peers.
        """
        if command.serialize_type != JSON:
            return with_lengths(self._binary(command.opaque, values), command.serialize_type, body_size)
        return with_lengths(self._format % (*values, command.opaque), JSON, body_size)

    def _binary(self, opaque: int, values: tuple[int | bytes, ...]) -> bytes:
        pack, pieces = _INT.pack, list[bytes]()
        for (name, how), value in zip(self._fields, values, strict=True):
            text = how % value
            pieces += (name, pack(len(text)), text)
        fields = b"".join(pieces)
        size = pack(len(fields) + len(self._constants))
        return b"".join((self._before, pack(opaque), self._behind, size, fields, self._constants))


@frozen
class TemplateReply:
    """A Reply by template. The body's views are not empty, `body_size` bytes in all."""

    template: ResponseTemplate
    values: tuple[int | bytes, ...]
    body: Sequence[bytes | memoryview] = ()
    body_size: int = 0

    def frame(self, command: RemotingCommand) -> Sequence[bytes | memoryview]:
        """Encode the response to a command, in pieces."""
        return self.template.head(command, self.values, self.body_size), *self.body

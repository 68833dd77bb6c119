"""Templates of frequent responses: the JSON header is encoded once, and only its values are filled in.

This saves a dict and its encoding for each response. Other serializations are encoded as any response is.
"""

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from twinlog.cluster.remoting.command import JSON, RemotingCommand, encode_header, encode_json, with_lengths


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

    def __attrs_post_init__(self) -> None:
        marks = {name: f"@{name}@" for name in self.names}
        response = RemotingCommand(self.code, 0, 1, {**marks, **self.constants}, remark=self.remark)
        text = encode_json(response).decode().replace("%", "%%").replace('"opaque":0', '"opaque":%d')
        for name, mark in marks.items():
            text = text.replace(mark, self.names[name])
        self._format = text.encode()

    def ext(self, values: Sequence[int | bytes]) -> dict[str, str]:
        """The extFields with these values."""
        texts = ((how.encode() % (value,)).decode() for how, value in zip(self.names.values(), values, strict=True))
        return {**dict(zip(self.names, texts, strict=True)), **self.constants}

    def head(self, command: RemotingCommand, values: tuple[int | bytes, ...], body_size: int = 0) -> bytes:
        """Encode the frame up to its body. Values are in the order of `names`.

        Raises RemotingProtocolError when the frame is too long for peers.
        """
        if command.serialize_type != JSON:
            response = RemotingCommand.response_to(command, self.code, remark=self.remark, ext=self.ext(values))
            return encode_header(response, body_size)
        return with_lengths(self._format % (*values, command.opaque), JSON, body_size)


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

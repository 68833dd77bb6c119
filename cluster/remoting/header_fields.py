"""Typed headers of requests and responses: conversion between header classes and extFields (text to text).

A header class names its fields once. The wire name is the attribute's name in camelCase, or given by `wire()`; the
type is `str`, `bool`, I32 or I64; a field without a default is required; one that is None is left out on the wire.
Source: RemotingCommand.decodeCommandCustomHeader, makeCustomHeaderToNet (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import HeaderError

I32 = Annotated[int, 32]
I64 = Annotated[int, 64]


class _Header:
    """Parent of all headers: equality and repr once for all of them."""

    __slots__ = ()
    wire_letters: ClassVar[str] = ""  # The wire names of the fields, a letter each; empty: names of their own.

    def __eq__(self, other: object) -> bool:
        names = wire_names(type(self))
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        cls: type[Any] = type(self)
        shown = (field.name for field in attrs.fields(cls) if field.repr)
        return f"{cls.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class RequestHeader(_Header):
    """Parent of the request headers; `code` is the request that the class belongs to."""

    __slots__ = ()
    code: ClassVar[RequestCode]

    def command(self, body: bytes | memoryview = b"", *, flag: int = 0, remark: str | None = None) -> RemotingCommand:
        """The request with this header and body."""
        return RemotingCommand(self.code, 0, flag, encode_header_fields(self) or None, body, remark)


class ResponseHeader(_Header):
    """Parent of the response headers that clients decode."""

    __slots__ = ()


H = TypeVar("H")
R = TypeVar("R", bound=RequestHeader)


@dataclass_transform(field_specifiers=(attrs.field,))
def header(cls: type[H]) -> type[H]:
    """attrs.define for headers. Without a repr and an equality for each class, a hundred of them take half the time to import."""
    return attrs.define(eq=False, repr=False)(cls)


@dataclass_transform(field_specifiers=(attrs.field,))
def request_header(code: RequestCode) -> Callable[[type[R]], type[R]]:
    """Decorator `header` for a request with this code."""

    def decorate(cls: type[R]) -> type[R]:
        cls.code = code
        return header(cls)

    return decorate


def wire(name: str) -> dict[str, str]:
    """Metadata for a field whose wire name differs from its attribute's name in camelCase."""
    return {"wire": name}


class _Field(NamedTuple):
    attribute: str
    wire: str
    required: bool
    convert: str | None  # Name of the function below that converts the value; None: text, taken unchanged.
    default: str | None  # Value of a missing field, in its wire form.


class _Table(NamedTuple):
    fields: tuple[_Field, ...]
    build: Callable[[Mapping[str, str]], Any]
    encode: Callable[[Any], dict[str, str]]


def decode_header(cls: type[H], ext: Mapping[str, str] | None) -> H:
    """Build the header from extFields; unknown ones are ignored.

    Raises HeaderError for a required field that is missing (`the custom field <topic> is null`) or a number that is
    not plain decimal or too large.
    """
    fields, build, _ = _table(cls)
    try:
        return build(ext or {})  # type: ignore[no-any-return]
    except (KeyError, ValueError):
        raise _fault(fields, ext or {}) from None


def encode_header_fields(header: object) -> dict[str, str]:
    """The extFields of a header; fields that are None are left out."""
    return _table(type(header)).encode(header)


def wire_names(cls: type) -> dict[str, str]:
    """Attribute name to wire name, in the order of the class."""
    return {field.attribute: field.wire for field in _table(cls).fields}


def as_text(value: object) -> str:
    """The wire form of a field's value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_tables: dict[type, _Table] = {}


def _table(cls: type) -> _Table:
    return _tables.get(cls) or _tables.setdefault(cls, _compile(cls))


def _compile(cls: type) -> _Table:
    hints = get_type_hints(cls, include_extras=True)
    fields = []
    letters = cls.wire_letters if issubclass(cls, _Header) else ""
    for index, attribute in enumerate(attrs.fields(cls)):
        required = attribute.default is attrs.NOTHING
        default = None if required or attribute.default is None else as_text(attribute.default)
        name = letters[index] if letters else attribute.metadata.get("wire") or _camel_case(attribute.name)
        fields.append(_Field(attribute.name, name, required, _converter(hints[attribute.name]), default))
    return _Table(tuple(fields), _builder(cls, fields), _encoder(fields))


def _builder(cls: type, fields: list[_Field]) -> Callable[[Mapping[str, str]], Any]:
    """Compile `lambda ext: cls(ext["topic"], _int32(ext["queueId"]), ...)`: a loop is half as fast on the produce path."""
    arguments = []
    for field in fields:
        value = f"ext[{field.wire!r}]" if field.required else f"ext.get({field.wire!r}, {field.default!r})"
        arguments.append(f"{field.convert}({value})" if field.convert else value)
    build: Callable[[Mapping[str, str]], Any] = eval(
        f"lambda ext: cls({', '.join(arguments)})", {**_CONVERT, "cls": cls}
    )
    return build


def _encoder(fields: list[_Field]) -> Callable[[Any], dict[str, str]]:
    """Compile a function that makes a dict of the first fields and adds the others: a loop takes three times as long."""
    always = [field.required or field.default is not None for field in fields]
    count = always.index(False) if False in always else len(fields)
    lines = [f"ext = {{{', '.join(f'{field.wire!r}: {_text_of(field)}' for field in fields[:count])}}}"]
    for field, is_always_there in zip(fields[count:], always[count:], strict=True):
        condition = "" if is_always_there else f"if header.{field.attribute} is not None: "
        lines.append(f"{condition}ext[{field.wire!r}] = {_text_of(field)}")
    names: dict[str, Callable[[Any], dict[str, str]]] = {}
    exec("\n    ".join(["def encode(header):", *lines, "return ext"]), names)
    return names["encode"]


def _text_of(field: _Field) -> str:
    """The expression of a field's value as text."""
    value = f"header.{field.attribute}"
    kind = (field.convert or "text").removeprefix("optional_")
    return {"text": value, "boolean": f'("true" if {value} else "false")'}.get(kind, f"str({value})")


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _converter(kind: Any) -> str | None:
    if get_origin(kind) in (Union, UnionType):  # `I32 | None`
        (inner,) = (member for member in get_args(kind) if member is not NoneType)
        name = _converter(inner)
        return name and f"optional_{name}"
    return {str: None, bool: "boolean", I32: "int32", I64: "int64"}[kind]


def _boolean(text: str) -> bool:
    return text == "true" or text.lower() == "true"


_SMALL = {str(number): number for number in range(-1, 1_024)}  # Most numbers in headers: counts, flags, queue ids.


def _int32(text: str) -> int:
    value = _SMALL.get(text)
    if value is None:
        value = _plain_int(text)
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            raise ValueError
    return value


def _int64(text: str) -> int:
    value = _SMALL.get(text)
    if value is None:
        if len(text) < 19 and text.isascii() and text.isdecimal():  # Nearly all: offsets, times.
            return int(text)
        value = _plain_int(text)
        if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            raise ValueError
    return value


def _plain_int(text: str) -> int:
    """Parse like Java's parseLong: a sign and ASCII digits; Python's int() also takes blanks and underscores."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= 20):
        raise ValueError
    return int(text)


def _optional(convert: Callable[[str], Any]) -> Callable[[str | None], Any]:
    return lambda text: convert(text) if text else None  # Go clients send unset fields as "".


_CONVERT: dict[str, Callable[..., Any]] = {"boolean": _boolean, "int32": _int32, "int64": _int64}
_CONVERT |= {f"optional_{name}": _optional(convert) for name, convert in _CONVERT.items()}


def _fault(fields: tuple[_Field, ...], ext: Mapping[str, str]) -> HeaderError:
    """The error for the first missing field, else for the one that does not convert."""
    for field in fields:
        if field.required and field.wire not in ext:
            return HeaderError(f"the custom field <{field.wire}> is null")
    for field in fields:
        if field.convert and field.wire in ext:
            try:
                _CONVERT[field.convert](ext[field.wire])
            except ValueError:
                return HeaderError(f'the custom field <{field.wire}> is not a number in range: "{ext[field.wire]:.40}"')
    raise AssertionError("a header does not decode, though each of its fields does")

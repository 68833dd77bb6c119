"""Typed request and response headers: an attrs class on one side, extFields (text to text) on the other.

A header class names its fields once. The wire name is the attribute's name in camelCase, or what `wire()` says; the
type is `str`, `bool`, I32 or I64; a field without a default is required; one that is None is left out on the wire.
Source: RemotingCommand.decodeCommandCustomHeader, makeCustomHeaderToNet (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from cluster.remoting.codes import RequestCode
from cluster.remoting.errors import HeaderError

I32 = Annotated[int, 32]
I64 = Annotated[int, 64]


class RequestHeader:
    """Parent of the request headers; `code` is the request that the class belongs to."""

    __slots__ = ()
    code: ClassVar[RequestCode]


class ResponseHeader:
    """Parent of the response headers that clients decode."""

    __slots__ = ()


H = TypeVar("H")


def wire(name: str) -> dict[str, str]:
    """Metadata of a field whose wire name does not follow from its attribute's name."""
    return {"wire": name}


class _Field(NamedTuple):
    wire: str
    default: Any  # Taken when the field is missing; of a required one it is never used.
    convert: Callable[[str], Any] | None  # None: text, taken as it is.


class _Table(NamedTuple):
    fields: tuple[_Field, ...]
    required: frozenset[str]
    names: tuple[tuple[str, str], ...]  # Attribute and wire name.


def decode_header(cls: type[H], ext: Mapping[str, str] | None) -> H:
    """Build the header from extFields; unknown ones are ignored.

    Raises HeaderError for a required field that is missing (`the custom field <topic> is null`) or a number that is
    not plain decimal or too large.
    """
    fields, required, _ = _table(cls)
    if ext is None:
        ext = {}
    if not required <= ext.keys():
        missing = next(field.wire for field in fields if field.wire in required and field.wire not in ext)
        raise HeaderError(f"the custom field <{missing}> is null")
    get = ext.get
    try:
        return cls(
            *[
                get(name, default) if convert is None or name not in ext else convert(ext[name])
                for name, default, convert in fields
            ]
        )
    except ValueError:
        raise _fault(fields, ext) from None


def encode_header_fields(header: object) -> dict[str, str]:
    """The extFields of a header; fields that are None are left out."""
    ext = {}
    for attribute, name in _table(type(header)).names:
        value = getattr(header, attribute)
        if value is not None:
            ext[name] = value if type(value) is str else _text(value)
    return ext


def wire_names(cls: type) -> dict[str, str]:
    """Attribute name to wire name, in the order of the class."""
    return dict(_table(cls).names)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_tables: dict[type, _Table] = {}


def _table(cls: type) -> _Table:
    return _tables.get(cls) or _tables.setdefault(cls, _compile(cls))


def _compile(cls: type) -> _Table:
    hints = get_type_hints(cls, include_extras=True)
    fields, required, names = [], set(), []
    for attribute in attrs.fields(cls):
        name = attribute.metadata.get("wire") or _camel_case(attribute.name)
        is_required = attribute.default is attrs.NOTHING
        kind, optional = _without_none(hints[attribute.name])
        fields.append(_Field(name, None if is_required else attribute.default, _converter(kind, optional=optional)))
        names.append((attribute.name, name))
        if is_required:
            required.add(name)
    return _Table(tuple(fields), frozenset(required), tuple(names))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        (inner,) = (member for member in get_args(kind) if member is not NoneType)
        return inner, True
    return kind, False


def _converter(kind: Any, *, optional: bool) -> Callable[[str], Any] | None:
    if kind is str:
        return None
    if kind is bool:
        return _boolean
    integer = {I32: _int32, I64: _int64}[kind]
    return (lambda text: integer(text) if text else None) if optional else integer  # Go sends what is unset as "".


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
        value = _plain_int(text)
        if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            raise ValueError
    return value


def _plain_int(text: str) -> int:
    """As Java's parseLong: a sign and ASCII digits; Python's int() would take blanks and underscores, too."""
    if len(text) > 20 or not (text.isascii() and (text.isdecimal() or text[1:].isdecimal())):
        raise ValueError
    return int(text)


def _fault(fields: tuple[_Field, ...], ext: Mapping[str, str]) -> HeaderError:
    """Find the field that would not convert."""
    for name, _, convert in fields:
        if convert is not None and name in ext:
            try:
                convert(ext[name])
            except ValueError:
                return HeaderError(f'the custom field <{name}> is not a number in range: "{ext[name]:.40}"')
    raise AssertionError("a header did not decode, yet each of its fields does")

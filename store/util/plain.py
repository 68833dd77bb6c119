"""Frozen objects as plain JSON values and back: keys in camelCase, every type checked. No I/O.

attrs classes and NamedTuples become objects, tuples lists, enums their values. A missing key takes the field's default, an
unknown one is ignored: a later version may have more.
"""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """The reverse of from_plain."""
    kind: Any = type(value)
    if attrs.has(kind):
        return {_wire_name(name): to_plain(getattr(value, name)) for name in _fields(kind)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {_wire_name(name): to_plain(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, (tuple, list, frozenset)):
        return [to_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    return value.value if isinstance(value, Enum) else value


def from_plain(kind: type[T], raw: object) -> T:
    """An object of this kind. Raises ValueError, with the place, when the values are of other kinds or missing."""
    return cast(T, _value(kind, raw, kind.__name__))


def _value(kind: Any, raw: object, place: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(arguments, raw, place)
    if origin is Literal:
        if any(raw == choice and type(raw) is type(choice) for choice in arguments):
            return raw
    elif origin is tuple and isinstance(raw, list):
        return tuple(_value(arguments[0], part, f"{place}[{number}]") for number, part in enumerate(raw))
    elif origin is Mapping and isinstance(raw, dict):
        return {
            int(key) if arguments[0] is int else key: _value(arguments[1], part, place) for key, part in raw.items()
        }
    elif kind is Any:
        return raw
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if raw in {member.value for member in kind}:
            return kind(raw)
    elif attrs.has(kind) or hasattr(kind, "_fields"):
        return _object(kind, raw, place)
    elif kind is float and isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return float(raw)
    elif type(raw) is kind:
        return raw
    raise ValueError(f"{place} is {raw!r}")


def _one_of(kinds: tuple[Any, ...], raw: object, place: str) -> Any:
    if raw is None and NoneType in kinds:
        return None
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _value(kind, raw, place)
            except ValueError:
                if kind == [other for other in kinds if other is not NoneType][-1]:
                    raise
    raise ValueError(f"{place} is {raw!r}")


def _object(kind: Any, raw: object, place: str) -> Any:
    if not isinstance(raw, dict):
        raise ValueError(f"{place} is {raw!r}")
    said = {}
    for name, part in _fields(kind).items():
        if (key := _wire_name(name)) in raw:
            said[name] = _value(part, raw[key], f"{place}.{key}")
    try:
        return kind(**said)
    except TypeError as error:  # One without a default is missing.
        raise ValueError(f"{place}: {error}") from error


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else kind._fields
    return {name: hints[name] for name in names}


def _wire_name(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(part.capitalize() for part in more)

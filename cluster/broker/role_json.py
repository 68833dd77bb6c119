"""Frozen attrs classes to JSON objects and back: field names in camelCase, types from the classes' annotations.

Enums are their values, named tuples objects, too. Unknown names are ignored, missing ones take the class's default.
"""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """What orjson can write."""
    if isinstance(value, Enum):
        return value.value
    if attrs.has(type(value)) or hasattr(value, "_fields"):
        return {camel: to_plain(getattr(value, name)) for name, camel in _names(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [to_plain(each) for each in value]
    return value


def from_plain(kind: type[T], data: object) -> T:
    """Read what to_plain() made. Raises ValueError."""
    return cast(T, _read(kind, data, kind.__name__))


def _read(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (Union, UnionType):
        return _read_union(get_args(kind), data, where)
    if origin is Literal:
        return data if data in get_args(kind) else _fault(kind, data, where)
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], each, where) for each in _expect(list, data, where))
    if origin is not None:  # Mapping[K, V]
        key_kind, value_kind = get_args(kind)
        table = _expect(dict, data, where)
        return {(int(key) if key_kind is int else key): _read(value_kind, each, where) for key, each in table.items()}
    if issubclass(kind, Enum):
        return kind(data)
    if attrs.has(kind) or hasattr(kind, "_fields"):
        return _read_object(kind, _expect(dict, data, where), where)
    if kind is float and type(data) is int:
        return float(data)
    return _expect(kind, data, where)


def _read_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _read(kind, data, where)
            except ValueError:
                continue
    return _fault(kinds, data, where)


def _read_object(kind: Any, data: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    found = {
        name: _read(hints[name], data[camel], f"{where}.{camel}")
        for name, camel in _names(kind).items()
        if camel in data
    }
    try:
        return kind(**found)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _expect(kind: Any, data: Any, where: str) -> Any:
    """Exactly this type: True is no number."""
    return data if type(data) is kind else _fault(kind, data, where)


def _fault(kind: Any, data: Any, where: str) -> Any:
    raise ValueError(f"{where}: {data!r:.80} is no {kind}")


@cache
def _names(kind: type) -> dict[str, str]:
    names = [each.name for each in attrs.fields(kind)] if attrs.has(kind) else list(kind._fields)  # type: ignore[attr-defined]
    return {name: _camel_case(name) for name in names}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)

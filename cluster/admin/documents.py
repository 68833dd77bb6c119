"""JSON documents of the command line and HTTP: the schema number first, then the fields of an attrs class; and their JSON Schema.

An unknown value is null. Plain numbers: bytes, seconds, ms since 1970.
"""

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import orjson
from attrs import asdict

SCHEMA = 1  # Grows when a field of any JSON answer changes its meaning or goes away.


def document(answer: Any) -> dict[str, Any]:
    """An attrs object, or a mapping, as one document."""
    return {"schema": SCHEMA, **_plain(answer)}


def dumps(value: Any, *, indent: bool = False) -> bytes:
    """A document as JSON, attrs objects in it included."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 if indent else None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, Enum):
        return value.name
    return asdict(value, recurse=False)


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}
_ARRAYS, _OBJECTS = (tuple, list, Sequence), (dict, Mapping)


def schema_of(document: type) -> dict[str, Any]:
    """The schema of one document: the class's fields, and the number that all of our documents carry."""
    definitions: dict[str, Any] = {}
    top = _object(document, definitions)
    top["properties"] = {"schema": {"const": SCHEMA}, **top["properties"]}
    top["required"] = ["schema", *top["required"]]
    return {"$schema": DIALECT, "title": document.__name__, **top, "$defs": definitions}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {}
    for field in attrs.fields(kind):
        properties[field.name] = _type(hints[field.name], definitions)
        if doc := field.metadata.get("doc"):
            properties[field.name] = {**properties[field.name], "description": doc}
    return {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin in (Union, UnionType):
        return _either([_type(each, definitions) for each in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in _ARRAYS:
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [_type(each, definitions) for each in arguments]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        return {"type": "array", "items": _type(arguments[0], definitions)}
    if origin in _OBJECTS:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if inspect.isclass(hint) and attrs.has(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # Before its fields, which may name it again.
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"{hint} has no place in a JSON answer")


def _either(choices: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(choice) == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    return {"anyOf": choices}

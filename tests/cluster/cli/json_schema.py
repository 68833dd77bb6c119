"""Just enough of JSON Schema (draft 2020-12) to hold an answer against what `-o schema` promises."""

from typing import Any

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
KNOWN = {
    *("$schema", "$defs", "$ref", "title", "description", "type", "const", "enum", "anyOf"),
    *("properties", "required", "additionalProperties", "items", "prefixItems", "minItems"),
}


def violations(value: Any, schema: dict, root: dict | None = None, at: str = "$") -> list[str]:
    """Say where the value is not what the schema says; empty: it is."""
    root = schema if root is None else root
    assert set(schema) <= KNOWN, f"this validator does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema:
        tried = [violations(value, choice, root, at) for choice in schema["anyOf"]]
        return [] if [] in tried else [f"{at}: none of {len(tried)} choices", *(each for one in tried for each in one)]
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    if kinds := schema.get("type"):
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(TYPES[kind](value) for kind in kinds):
            return [f"{at}: {value!r} is no {' or '.join(kinds)}"]
    found = []
    if isinstance(value, dict):
        found += _object(value, schema, root, at)
    if isinstance(value, list):
        found += _array(value, schema, root, at)
    return found


def _object(value: dict, schema: dict, root: dict, at: str) -> list[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, each in value.items():
        if name in properties:
            found += violations(each, properties[name], root, f"{at}.{name}")
        elif others is False:
            found.append(f"{at}: {name} is not in the schema")
        elif others is not True:
            found += violations(each, others, root, f"{at}.{name}")
    return found


def _array(value: list, schema: dict, root: dict, at: str) -> list[str]:
    first = schema.get("prefixItems", [])
    found = [f"{at}: {len(value)} items"] if len(value) < schema.get("minItems", 0) else []
    if schema.get("items") is False and len(value) > len(first):
        found.append(f"{at}: {len(value)} items")
    for index, each in enumerate(value):
        items = first[index] if index < len(first) else schema.get("items", {})
        if isinstance(items, dict):
            found += violations(each, items, root, f"{at}[{index}]")
    return found

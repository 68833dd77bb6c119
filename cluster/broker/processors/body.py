"""Request bodies: JSON that came over the wire, looked at before anybody uses it."""

from typing import Any

from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.request import Request


def json_object(request: Request) -> dict[str, Any]:
    """The body as an object. Raises RequestError, which the client is told."""
    try:
        value = fastjson.loads(request.body)
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return value


def objects(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of objects under `key`; empty when there is none. Raises RequestError."""
    items = value.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key} is no list of objects")
    return items


def text(value: dict[str, Any], key: str) -> str:
    """The text under `key`. Raises RequestError."""
    item = value.get(key)
    if not isinstance(item, str) or not item:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key} is missing")
    return item

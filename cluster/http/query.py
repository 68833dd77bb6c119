"""Query and JSON body of requests, checked; an error lists what is allowed."""

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

import orjson
from attrs import frozen
from starlette.requests import Request

from twinlog.cluster.http.server.app import Parameter
from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.text import parse_size

TEXT_LENGTH_MAX = 1000


def wrong(name: str, value: Any, allowed: str) -> HttpError:
    """A value that cannot be."""
    shown = repr(value)[:80]
    return HttpError(
        status=400, what=f"{name}={shown} cannot be.", why=f"Allowed is {allowed}.", next_step="Send another value."
    )


def unknown(name: str, known: Collection[str]) -> HttpError:
    """The error for an unknown name."""
    near = difflib.get_close_matches(name, known, n=1)
    return HttpError(
        status=400,
        what=f"There is no parameter {name[:80]!r} here.",
        why=f"There are: {', '.join(known) or 'none'}.",
        next_step=f"Did you mean {near[0]}?" if near else "Leave it out.",
    )


@frozen
class Query:
    """The query of one request."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, request: Request, parameters: Collection[Parameter]) -> "Query":
        """Raises HttpError for a parameter that is not among these."""
        known = [each.name for each in parameters]
        for name in request.query_params:
            if name not in known:
                raise unknown(name, known)
        return cls(dict(request.query_params))

    def text(self, name: str) -> str | None:
        """The text; None: not given, or empty."""
        value = self.values.get(name)
        if value is not None and (len(value) > TEXT_LENGTH_MAX or not value.isprintable()):
            raise wrong(name, value, f"up to {TEXT_LENGTH_MAX} printable characters")
        return value or None

    def number(self, name: str, least: int, most: int) -> int | None:
        """A whole number."""
        value = self.values.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or len(value) > 19 or not least <= int(value) <= most:
            raise wrong(name, value, f"a whole number from {least} to {most}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        """A time."""
        value = self.values.get(name)
        try:
            seconds = float(value) if value is not None else None
        except ValueError:
            seconds = math.nan
        if seconds is not None and not 0 <= seconds < math.inf:
            raise wrong(name, value, "a number of seconds")
        return seconds

    def size(self, name: str) -> int | None:
        """Bytes in 16MB."""
        value = self.values.get(name)
        try:
            return parse_size(value[:40]) if value is not None else None
        except ValueError:
            raise wrong(name, value, "a size, such as 16MB or 1GiB") from None

    def flag(self, name: str) -> bool:
        """true or false; the name alone is true."""
        value = self.values.get(name, "false").lower()
        if value not in ("true", "false", "1", "0", ""):
            raise wrong(name, value, "true or false")
        return value in ("true", "1", "")

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """One of these values."""
        value = self.values.get(name)
        if value is not None and value not in choices:
            raise wrong(name, value, " or ".join(choices))
        return value


@frozen(kw_only=True)
class Field(Parameter):
    """A field of a request's JSON body."""

    kind: type
    needed: bool = False
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()  # Of a text; none: any.


async def read_body(request: Request, fields: Collection[Field]) -> dict[str, Any]:
    """The JSON object, its values of the fields' types. Raises HttpError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    data = await request.body()
    if kind != "application/json" and data:
        raise HttpError(
            status=415,
            what="The request's body is no JSON.",
            why=f"Its Content-Type is {kind[:80] or 'not given'}.",
            next_step="Send: Content-Type: application/json",
        )
    try:
        body = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError as error:
        raise HttpError(
            status=400, what="The request's body is no JSON.", why=f"{error}.", next_step="Send a JSON object."
        ) from error
    if not isinstance(body, dict):
        raise HttpError(
            status=400,
            what="The request's body is no JSON object.",
            why=f"It is {type(body).__name__}.",
            next_step="Send: {}",
        )
    known = {each.name: each for each in fields}
    for name in body:
        if name not in known:
            raise unknown(name, known)
    for each in fields:
        if each.needed and body.get(each.name) is None:
            raise wrong(each.name, None, each.doc)
    return {name: _value(known[name], value) for name, value in body.items() if value is not None}


def _value(field: Field, value: Any) -> Any:
    if field.kind is bool and isinstance(value, bool):
        return value
    if field.choices:
        if value in field.choices:
            return value
        raise wrong(field.name, value, " or ".join(field.choices))
    if field.kind is str and isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and value.isprintable():
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if field.kind is float and is_number and field.least <= value <= field.most:
        return float(value)
    if field.kind is object and (value == "unknown" or _is_size(value)):
        return value
    raise wrong(field.name, value, field.doc)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63

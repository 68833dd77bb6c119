"""The public surface as lines of text: commands, configuration keys, metrics, HTTP paths, and the documents of `-o schema`.

    .venv/bin/python -m tests.surface

writes it to tests/golden/surface.txt. Texts for people (help, descriptions) are no part of it.
"""

import platform
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import click
import orjson
import trio
from click.testing import CliRunner
from starlette.routing import BaseRoute, Mount

from tests.product import ROOT
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.cli.main import cli
from twinlog.cluster.dashboard.app import page_routes, role_routes
from twinlog.cluster.http.events import Feed
from twinlog.cluster.http.member import member_routes
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.app import Endpoint
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.http.source import Source
from twinlog.cluster.metrics.exposition import METRICS

SURFACE = Path(__file__).parent / "golden" / "surface.txt"


def surface() -> str:
    """All lines, in an order that depends on nothing but the lines."""
    found = {*command_lines(), *key_lines(), *metric_lines(), *http_lines()}
    return "\n".join(sorted(found)) + "\n"


# Commands


def commands(group: click.Group, path: str = "twinlog") -> Iterator[tuple[str, click.Command]]:
    """Each command with its words."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def command_lines() -> Iterator[str]:
    for path, command in commands(cli):
        yield f"command: {path}"
        for parameter in command.params:
            yield f"command: {path} {parameter_text(parameter)}"
        if any("schema" in getattr(each.type, "choices", ()) for each in command.params):
            yield from document_lines(path, command.params)


def parameter_text(parameter: click.Parameter) -> str:
    """Names, type, and what else a script could depend on."""
    if isinstance(parameter, click.Argument):
        names, more = parameter.make_metavar(click.Context(click.Command(""))), []
    else:
        assert isinstance(parameter, click.Option)
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        more = ["multiple"] if parameter.multiple else []
        more += ["required"] if parameter.required else []
        more += ["hidden"] if parameter.hidden else []
        more += [f"${parameter.envvar}"] if parameter.envvar else []
        default = parameter.to_info_dict()["default"]
        more += [f"default {default}"] if default not in (None, False, (), []) and not callable(default) else []
    kind = "flag" if isinstance(parameter, click.Option) and parameter.is_flag else parameter_type(parameter.type)
    return " ".join([names, kind, *more])


def parameter_type(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.name} {'' if kind.min is None else kind.min}..{'' if kind.max is None else kind.max}"
    return kind.name


# Documents


def document_lines(path: str, parameters: list[click.Parameter]) -> Iterator[str]:
    """The documents of a command, also with each option that chooses another one, and their fields."""
    plain = schema(path)
    yield f"command: {path} -o json prints {plain['title']}"
    yield from schema_lines(plain)
    for option in [each for each in parameters if isinstance(each, click.Option) and each.name != "fmt"]:
        other = schema(path, option.opts[-1], *([] if option.is_flag else ["x"]))
        if other["title"] != plain["title"]:
            yield f"command: {path} {option.opts[-1]} -o json prints {other['title']}"
            yield from schema_lines(other)


def schema(path: str, *more: str) -> dict[str, Any]:
    """What -o schema prints, maybe with an option more."""
    done = CliRunner().invoke(cli, [*path.split()[1:], "-o", "schema", *more])
    assert done.exit_code == 0, (path, more, done.output)
    return orjson.loads(done.output)


def schema_lines(document: dict[str, Any]) -> Iterator[str]:
    """One line for each field of a document and of the classes in it."""
    for name, kind in {document["title"]: document, **document["$defs"]}.items():
        needed = set(kind.get("required", ()))
        for key, value in kind.get("properties", {}).items():
            yield f"document: {name}.{key} {json_type(value)}{'' if key in needed else ' optional'}"


def json_type(value: dict[str, Any]) -> str:
    """A JSON Schema in one line."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return "|".join(map(json_type, value["anyOf"]))
    if "enum" in value or "const" in value:
        return "|".join(str(each) for each in value.get("enum", [value.get("const")]))
    match value["type"]:
        case "array" if "prefixItems" in value:
            return f"[{', '.join(map(json_type, value['prefixItems']))}]"
        case "array":
            return f"[{json_type(value['items'])}, ...]"
        case "object":
            return f"{{string: {json_type(value['additionalProperties'])}}}"
        case list(kinds):
            return "|".join(kinds)
        case kind:
            return str(kind)


# Configuration


def key_lines() -> Iterator[str]:
    """Every key of the classes that the reference lists; test_reference.py sees that it lists all."""
    page = (ROOT / "docs/reference/config.md").read_text()
    for place in re.findall(r"^```{options} (\S+)$", page, re.MULTILINE):
        module, _, name = place.rpartition(".")
        config = getattr(import_module(module), name)
        hints = get_type_hints(config)
        for option in attrs.fields(config):
            if "key" in option.metadata:
                yield f"key: {option.metadata['key']} {type_text(hints[option.name])} {default_text(option.default)}"


def type_text(hint: Any) -> str:
    """A type without the place of its class."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(str(each.value) for each in hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is NoneType:
        return "none"
    if arguments:
        texts = ["..." if each is Ellipsis else type_text(each) for each in arguments]
        is_choice = origin is Union or not isinstance(origin, type) or not issubclass(origin, tuple | list | dict)
        return "|".join(texts) if is_choice else f"{origin.__name__}[{', '.join(texts)}]"
    return str(getattr(hint, "__name__", hint))


def default_text(value: Any) -> str:
    if isinstance(value, attrs.Factory) or value == platform.node():
        return "default computed"
    return f"default {'none' if value in (None, '') else value.value if isinstance(value, Enum) else value}"


# Metrics


def metric_lines() -> Iterator[str]:
    for metric in METRICS:
        yield f"metric: {metric.name} {metric.kind} {{{', '.join(metric.all_labels)}}}"


# HTTP


async def member_endpoints() -> list[BaseRoute]:
    source = Source(kind="broker", read_node=dict, read_snapshot=nothing, namesrv=tuple)
    return list(member_routes(source, nothing, Tokens(), Operations(), Feed(nothing)))


async def dashboard_endpoints() -> list[BaseRoute]:
    """Those that only the dashboard has."""
    return [*page_routes(nothing, nothing, Tokens()), *role_routes(nothing, nothing, Operations())]


def nothing(*_arguments: Any) -> Any:
    raise AssertionError("no request is made")


def http_lines() -> Iterator[str]:
    for kind, routes in (("http", member_endpoints), ("dashboard", dashboard_endpoints)):
        for route in trio.run(routes):
            if isinstance(route, Endpoint):
                yield f"{kind}: {route.method} {route.path} {' '.join(each.name for each in route.parameters)}".rstrip()
                if route.document is not None:
                    yield f"{kind}: {route.method} {route.path} answers {route.document.__name__}"
                    yield from schema_lines(schema_of(route.document))
            else:
                assert isinstance(route, Mount)
                yield f"{kind}: GET {route.path}/*"


if __name__ == "__main__":
    SURFACE.write_text(surface())

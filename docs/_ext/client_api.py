"""Directives `client-api`: the public names of a package with their docstrings, and `client-errors`: its errors as a tree, so
that page and code cannot differ.
"""

import inspect
from collections.abc import Iterator
from enum import Enum, EnumMeta
from importlib import import_module
from typing import Any

from attrs import NOTHING
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def _call(function: Any) -> str:
    """`(a, b=1, *, c=...)`, without types and without self."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        default = parameter.default
        if default is NOTHING:  # A factory makes the default.
            parameter = parameter.replace(default=_Shown("..."))
        elif isinstance(default, Enum):
            parameter = parameter.replace(default=_Shown(f"{type(default).__name__}.{default.name}"))
        elif default is not inspect.Parameter.empty and not isinstance(default, bool | int | str | float | None):
            parameter = parameter.replace(default=_Shown("..."))
        parameters.append(parameter.replace(annotation=inspect.Parameter.empty))
    return str(inspect.Signature(parameters))


class _Shown:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _text(thing: Any) -> str:
    """A docstring as Markdown: examples become code."""
    lines, inside = [], False
    for line in inspect.cleandoc(thing.__doc__ or "").splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```python")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def _members(thing: type) -> Iterator[str]:
    for name, member in vars(thing).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__wrapped__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        if function.__doc__.startswith("Internal: "):
            continue
        wrapped = function is not member and not isinstance(member, property)
        awaited = "async with " if wrapped else "await " if inspect.iscoroutinefunction(function) else ""
        awaited = getattr(member, "lead", awaited)  # Of blocking methods.
        shown = name if isinstance(member, property) else f"{name}{_call(function)}"
        yield f"`{awaited}{shown}`\n: " + _text(function).replace("\n", "\n  ")


def errors(package: str) -> str:
    """All errors of `package.__all__` as a table: children below their parents, indented."""
    module = import_module(package)
    found = [getattr(module, name) for name in module.__all__]
    known = [each for each in found if isinstance(each, type) and issubclass(each, Exception)]
    rows = ["| error | meaning | next |", "| --- | --- | --- |"]

    def add(parent: type, depth: int) -> None:
        for each in sorted((each for each in known if _parent(each, known) is parent), key=lambda each: each.__name__):
            others = [base.__name__ for base in each.__bases__ if base not in (_parent(each, known), Exception, object)]
            name = (
                "&emsp;" * depth
                + f"[`{each.__name__}`](#{each.__name__.lower()})"
                + "".join(f", a `{base}`" for base in others)
            )
            step = each.next_step or "Do what `report().next_step` says."
            rows.append(f"| {name} | {_cell(inspect.cleandoc(each.__doc__ or ''))} | {_cell(step)} |")
            add(each, depth + 1)

    add(Exception, 0)
    return "\n".join(rows)


def _parent(error: type, known: list[type]) -> type:
    return next((base for base in error.__mro__[1:] if base in known), Exception)


def _cell(text: str) -> str:
    """The first sentences of a text, without attributes."""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "&#124;")


def describe(package: str) -> str:
    """All of `package.__all__`, in that order, as Markdown."""
    module = import_module(package)
    parts = []
    for name in module.__all__:
        thing = getattr(module, name)
        parts.append(f"### {name}")
        if isinstance(thing, EnumMeta):
            parts += [_text(thing), ", ".join(f"`{name}.{member}`" for member in thing.__members__)]
            continue
        awaited = "await " if inspect.iscoroutinefunction(thing) else ""
        if not (isinstance(thing, type) and issubclass(thing, Exception)):
            parts.append(f"```python\n{awaited}{name}{_call(thing)}\n```")
        parts.append(_text(thing))
        if isinstance(thing, type):
            parts += _members(thing)
    return "\n\n".join(parts)


class ClientApiDirective(SphinxDirective):
    required_arguments = 1  # A package with __all__.

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(describe(self.arguments[0]), allow_section_headings=True)


class ClientErrorsDirective(SphinxDirective):
    required_arguments = 1  # A package with __all__.

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(errors(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("client-errors", ClientErrorsDirective)
    app.add_directive("client-api", ClientApiDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

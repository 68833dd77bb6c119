"""The directives `options`, a table of the keys that a class declares, and `changeable`, of those that requests may change.

Both are made from the program, so that page and program cannot differ.
"""

import platform
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from typing import Any

import attrs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def shown(value: Any) -> str:
    """Write a default as broker.conf would; what differs from machine to machine is described."""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        return "computed"
    if value is None or value == "":
        return "none"
    if value == platform.node():
        return "this host's name"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def table(config: type) -> str:
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for option in attrs.fields(config):
        if "key" in option.metadata:
            meaning = option.metadata["doc"]
            if isinstance(option.default, Enum) and str(option.default.value) not in meaning:
                meaning += ": " + ", ".join(f"`{member.value}`" for member in type(option.default))
            rows.append(f"| `{option.metadata['key']}` | {shown(option.default)} | {meaning.replace('|', '&#124;')} |")
    return "\n".join(rows)


class OptionsDirective(SphinxDirective):
    required_arguments = 1  # package.module.Class

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        source = import_module(module)
        if source.__file__:
            self.env.note_dependency(source.__file__)
        return self.parse_text_to_nodes(table(getattr(source, name)))


def changeable(allowed: Mapping[str, Any]) -> str:
    rows = ["| key | allowed |", "| --- | --- |"]
    for key, numbers in sorted(allowed.items()):
        first_and_last = (numbers[0], numbers[-1]) if numbers is not None else ()
        steps = isinstance(numbers, range) and numbers.step > 1
        words = ", ".join(map(str, numbers)) if steps else " to ".join(map(str, first_and_last))
        rows.append(f"| `{key}` | {words or 'as its default is written'} |")
    return "\n".join(rows)


class ChangeableDirective(SphinxDirective):
    required_arguments = 1  # package.module, with a table CHANGEABLE

    def run(self) -> list[nodes.Node]:
        source = import_module(self.arguments[0])
        if source.__file__:
            self.env.note_dependency(source.__file__)
        return self.parse_text_to_nodes(changeable(source.CHANGEABLE))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("options", OptionsDirective)
    app.add_directive("changeable", ChangeableDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

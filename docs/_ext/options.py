"""The directive `options`: a table of the keys that a class declares, so that page and program cannot differ."""

import platform
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


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("options", OptionsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

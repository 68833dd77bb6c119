"""The directives `endpoints`, `endpoint-parameters` and `endpoint-fields`: what a member answers over HTTP, from its routes."""

from collections.abc import Sequence
from typing import Any

import trio
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from twinlog.cluster.http import member as member_module
from twinlog.cluster.http.changes import FIELDS
from twinlog.cluster.http.events import Feed
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.app import Endpoint
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.http.source import Source


async def _routes() -> Sequence[Endpoint]:
    def nothing(*_arguments: Any) -> Any:
        raise AssertionError("nobody is asked for a page")

    source = Source(kind="broker", read_node=dict, read_snapshot=nothing, namesrv=tuple)
    return member_module.member_routes(source, nothing, Tokens(), Operations(), Feed(nothing))


def table() -> str:
    rows = ["| | path | answer | parameters |", "| --- | --- | --- | --- |"]
    for each in trio.run(_routes):
        named = [parameter.name for parameter in each.parameters] if each.method == "GET" else []
        parameters = ", ".join(f"`{name}`" for name in named) or ("body, see below" if each.method == "POST" else "")
        rows.append(f"| {each.method} | `{each.path}` | {_words(each.doc)} | {parameters} |")
    return "\n".join(rows)


def parameters() -> str:
    rows = ["| path | parameter | meaning |", "| --- | --- | --- |"]
    for each in trio.run(_routes):
        if each.method == "GET":
            rows += [f"| `{each.path}` | `{found.name}` | {_words(found.doc)} |" for found in each.parameters]
    return "\n".join(rows)


def fields() -> str:
    rows = ["| path | field | meaning |", "| --- | --- | --- |"]
    for verb, found in FIELDS.items():
        for each in found:
            needed = ", needed" if each.needed else ""
            rows.append(f"| `/v1/{verb}` | `{each.name}` | {_words(each.doc)}{needed} |")
    return "\n".join(rows)


def _words(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;")


class EndpointsDirective(SphinxDirective):
    """Each endpoint."""

    make = staticmethod(table)

    def run(self) -> list[nodes.Node]:
        for module in ("member", "probes", "v1", "changes", "events"):
            self.env.note_dependency(str(member_module.__file__).replace("member.py", f"{module}.py"))
        return self.parse_text_to_nodes(self.make())


class ParametersDirective(EndpointsDirective):
    """What queries may have."""

    make = staticmethod(parameters)


class FieldsDirective(EndpointsDirective):
    """What bodies may have."""

    make = staticmethod(fields)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("endpoints", EndpointsDirective)
    app.add_directive("endpoint-parameters", ParametersDirective)
    app.add_directive("endpoint-fields", FieldsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

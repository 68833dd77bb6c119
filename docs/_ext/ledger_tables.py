"""The directive `ledger-table`: columns of a table of cluster/pipeline/ledger/rows.py: page and table cannot differ."""

from attrs import fields
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from twinlog.cluster.pipeline.ledger import rows

TYPES = {
    "string": "STRING",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "list": "ARRAY<STRING>",
}


def table(name: str) -> str:
    """A description and a table in Markdown."""
    kind = rows.TABLES[name]
    lines = [(kind.__doc__ or "").partition("\n")[0], "", "| column | type | meaning |", "| --- | --- | --- |"]
    for each in fields(kind):
        lines.append(f"| `{each.name}` | {TYPES[each.metadata['kind']]} | {each.metadata['doc']} |")
    return "\n".join(lines)


class LedgerDirective(SphinxDirective):
    required_arguments = 1  # The name of a table.

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(rows.__file__)
        return self.parse_text_to_nodes(table(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("ledger-table", LedgerDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

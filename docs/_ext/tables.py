"""The directive `spark-table`: columns and options of a table of cluster/pipeline/tables/schemas.py: page and table cannot
differ."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from twinlog.cluster.pipeline.tables import schemas
from twinlog.cluster.pipeline.tables.schemas import Table

TYPES = {"string": "STRING", "int64": "BIGINT", "int32": "INT", "int8": "TINYINT", "binary": "BINARY"}
TYPES["map<string, string>"] = "MAP<STRING, STRING>"


def table(found: Table) -> str:
    """Two tables in Markdown: columns, then options."""
    rows = ["| column | type | null | meaning |", "| --- | --- | --- | --- |"]
    for field in found.schema:
        meaning = field.metadata[b"doc"].decode().replace("|", "&#124;")
        pushed = "; **filters can spare reading**" if field.name in found.pushed else ""
        null = "may be" if field.nullable else ""
        rows.append(f"| `{field.name}` | {TYPES[str(field.type)]} | {null} | {meaning}{pushed} |")
    rows += ["", "| option | default | meaning |", "| --- | --- | --- |"]
    for option in found.options:
        default = f"`{option.default}`" if option.default else ""
        rows.append(f"| `{option.name}` | {default} | {option.doc} |")
    return "\n".join([found.doc, "", *rows])


class TableDirective(SphinxDirective):
    required_arguments = 1  # The name of a table.

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(schemas.__file__)
        (found,) = (each for each in schemas.TABLES if each.name == self.arguments[0])
        return self.parse_text_to_nodes(table(found))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("spark-table", TableDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

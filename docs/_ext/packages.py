"""The directive `packages`: the packages of one folder with what they say of themselves, so page and code cannot differ."""

import ast
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.product import FILES  # noqa: E402
from tests.test_layers import ORDER  # noqa: E402


def table(folder: str) -> str:
    """In the order in which they may import each other; modules that stand lower than their package are left out."""
    rows = ["| package | files | what it is | where to begin |", "| --- | --: | --- | --- |"]
    for name in ORDER:
        file = FILES[f"twinlog.{name}"]
        if name.partition(".")[0] != folder or file.name != "__init__.py":
            continue
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        first, *rest = text.split("\n\n")
        begin = next((each for each in " ".join(rest).replace("\n", " ").split(". ") if each.startswith("Begin ")), "")
        size = sum(each.parent == file.parent and each.name != "__init__.py" for each in FILES.values())
        begin = begin.removeprefix("Begin with ").rstrip(".")
        rows.append(f"| `{name.replace('.', '/')}` | {size} | {_cell(first)} | {_cell(begin)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;")


class PackagesDirective(SphinxDirective):
    required_arguments = 1  # store, ha or cluster.

    def run(self) -> list[nodes.Node]:
        for file in FILES.values():
            if file.name == "__init__.py":
                self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(table(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("packages", PackagesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

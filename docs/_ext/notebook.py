"""Notebooks as pages: text cells are Markdown, code cells and their kept outputs blocks. A test runs them, not this."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """The page. `name`: the file, offered behind the title."""
    title, *rest = notebook["cells"]
    offered = f"{''.join(title['source'])}\n\nThis page is the notebook {{download}}`{name}`, as a test runs it."
    return "\n\n".join([offered, *(block for cell in rest for block in _blocks(cell))])


def _blocks(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield _fenced("python", source)
    for output in cell["outputs"]:
        if "text" in output:
            yield _fenced("text", "".join(output["text"]))
        elif "text/html" in output["data"]:
            yield _fenced("{raw} html", "".join(output["data"]["text/html"]))
        else:
            yield _fenced("text", "".join(output["data"]["text/plain"]))


def _fenced(kind: str, text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


class NotebookParser(MystParser):
    """Parses nbformat's JSON by way of Markdown."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        name = Path(document["source"]).name
        super().parse(as_markdown(json.loads(inputstring), name), document)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Runs a notebook without Jupyter: its cells in order, in one process; keeps what each printed, and its last value.

    .venv/bin/python -m tests.spark.notebook docs/notebooks/rocketmq-in-spark.ipynb [OUT]      without OUT: in place

Cells are plain Python: no magics, no top-level await, no `display`. The file has the form that Jupyter writes, nbformat 4.5.
"""

import ast
import io
import json
import linecache
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    """The notebook."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(path: Path, notebook: dict[str, Any]) -> None:
    """Write it as Jupyter does."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def run(notebook: dict[str, Any]) -> None:
    """Execute all code cells and replace their outputs. Raises what a cell raises, with the cell's lines in the traceback."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        cell |= {"execution_count": number, "outputs": outputs(cell, number, names)}


def outputs(cell: Cell, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Execute one cell; its printed text and the value of its last expression, as nbformat has them."""
    source, name = "".join(cell["source"]), f"<cell {number}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    parsed = ast.parse(source, name)
    last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(parsed, name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), name, "eval"), names) if last is not None else None
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_") and (html := value._repr_html_()) is not None:
            data = {"text/html": lines(html)} | data
        found.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def lines(text: str) -> list[str]:
    """A text as nbformat keeps it."""
    return text.splitlines(keepends=True)


def main() -> None:
    """Run one."""
    source, *out = map(Path, sys.argv[1:])
    notebook = load(source)
    run(notebook)
    save(*(out or [source]), notebook)


if __name__ == "__main__":
    main()

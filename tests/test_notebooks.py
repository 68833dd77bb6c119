"""Notebooks of docs/notebooks as files and as pages of the docs; tests/spark/test_notebook.py runs them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.helpers import docs_extension

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
page = docs_extension("notebook")

LINES = {"type": "array", "items": {"type": "string"}}


def thing(**fields: Any) -> dict[str, Any]:
    """An object with exactly these fields."""
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


# What nbformat 4.5 asks of a notebook, of the kinds of cells and outputs that are used here.
OUTPUTS = [
    thing(name={"const": "stdout"}, output_type={"const": "stream"}, text=LINES),
    thing(
        data={"type": "object", "required": ["text/plain"], "additionalProperties": LINES},
        execution_count={"type": "integer"},
        metadata={"type": "object"},
        output_type={"const": "execute_result"},
    ),
]
SHARED = {"id": {"type": "string", "pattern": "^[a-zA-Z0-9-_]{1,64}$"}, "metadata": {"type": "object"}, "source": LINES}
CELLS = [
    thing(cell_type={"const": "markdown"}, **SHARED),
    thing(
        cell_type={"const": "code"},
        execution_count={"type": "integer"},
        outputs={"type": "array", "items": {"oneOf": OUTPUTS}},
        **SHARED,
    ),
]
NOTEBOOK = thing(
    cells={"type": "array", "items": {"oneOf": CELLS}},
    metadata={"type": "object", "required": ["kernelspec", "language_info"]},
    nbformat={"const": 4},
    nbformat_minor={"const": 5},
)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return json.loads(request.param.read_text())


def test_there_is_one():
    assert NOTEBOOKS


def test_a_notebook_has_the_form_that_jupyter_reads(notebook):
    assert [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(NOTEBOOK).iter_errors(notebook)
    ] == []
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "it was not run from top to bottom"


def test_kept_outputs_are_short_and_of_no_machine(notebook):
    kept = json.dumps([cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"])
    assert len(kept) < 20_000
    assert not re.search(r"/tmp/|127\.0\.0\.1:\d", kept)


def test_a_page_has_all_texts_code_and_outputs():
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {
            "cell_type": "code",
            "source": ["print(1)\n", "Bars()"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n", "```\n"]},
                {"output_type": "execute_result", "data": {"text/html": ["<svg></svg>"], "text/plain": ["<Bars>"]}},
            ],
        },
    ]
    text = page.as_markdown({"cells": cells}, "a.ipynb")
    assert text.startswith("# Title\n\nText.\n\nThis page is the notebook {download}`a.ipynb`")
    assert "```python\nprint(1)\nBars()\n```" in text
    assert "````text\n1\n```\n````" in text
    assert "```{raw} html\n<svg></svg>\n```" in text
    assert "<Bars>" not in text

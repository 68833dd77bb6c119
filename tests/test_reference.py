"""The reference is complete: what a user can set has its row."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def configuration_classes() -> set[str]:
    """Name every class in a config.py, or cluster/remoting/tls/config.py, that declares options."""
    found = set()
    for file in [file for package in ("store", "ha", "cluster") for file in (ROOT / package).rglob("*config.py")]:
        module = ".".join(("twinlog", *file.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(field, ast.AnnAssign) and "key=" in ast.unparse(field) for field in node.body
            ):
                found.add(f"{module}.{node.name}")
    return found


def test_every_configuration_class_is_in_the_reference():
    page = (ROOT / "docs/reference/config.md").read_text()
    assert configuration_classes()
    assert configuration_classes() == set(re.findall(r"^```{options} (\S+)$", page, re.MULTILINE))

"""`scripts/test quick`: at most three minutes, and something of every package."""

import ast
import re

from tests.product import FILES, ROOT, imports

(NEED_MORE,) = re.findall(r"need_more=\((.*?)\)", (ROOT / "scripts" / "test").read_text(), re.DOTALL)
SUITES = [ROOT / folder for folder in re.findall(r"--ignore=(\S+)", NEED_MORE)]


def is_slow(decorated: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(mark) == "pytest.mark.slow" for mark in decorated.decorator_list)


def has_quick_tests(source: str) -> bool:
    """Whether `-m "not slow"` leaves something of a module."""
    body = ast.parse(source).body
    marked = [
        ast.unparse(each.value) for each in body if isinstance(each, ast.Assign) and "pytestmark" in ast.unparse(each)
    ]
    tests = [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [each for each in tests if each.name.startswith("test_") and not is_slow(each)]
    return bool(tests) and not any("pytest.mark.slow" in marks for marks in marked)


def test_quick_has_a_test_of_every_package():
    """In the folder that mirrors it, or one that imports a module of it."""
    covered: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        source = file.read_text()
        if not any(suite in file.parents for suite in SUITES) and has_quick_tests(source):
            covered.add(".".join(("twinlog", *file.parent.relative_to(ROOT / "tests").parts)))
            covered |= {name.rpartition(".")[0] for name in imports(source, "tests") & FILES.keys()}
    packages = {name.rpartition(".")[0] for name, file in FILES.items() if file.name != "__init__.py"}
    assert len(packages) > 50
    assert packages - covered == set()


def test_what_is_slow_is_seen():
    assert has_quick_tests("def test_a(): ...")
    assert not has_quick_tests("@pytest.mark.slow\ndef test_a(): ...")
    assert not has_quick_tests("pytestmark = pytest.mark.slow\ndef test_a(): ...")
    assert not has_quick_tests("def helper(): ...")

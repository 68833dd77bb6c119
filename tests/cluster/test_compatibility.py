"""The page of compatibility tells of everything that is served, and of nothing that is not."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.dispatch import NOT_SERVED, refusal

ROOT = Path(__file__).parents[2]


@cache
def extension() -> ModuleType:
    path = ROOT / "docs" / "_ext" / "compatibility.py"
    spec = importlib.util.spec_from_file_location("compatibility_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("server", ["broker", "namesrv", "client"])
def test_every_code_has_a_row_and_every_row_a_code(server):
    listed = {int(code) for code in extension().read_table()[server]}
    served = {code for code in extension().SERVED[server]() if not 20_000 <= code < 30_000}
    assert (served - listed, listed - served) == (set(), set())


def test_every_known_code_is_served_or_says_why_not():
    served = set().union(*(codes() for codes in extension().SERVED.values()))
    assert {int(code) for code in RequestCode} <= served
    assert not served & NOT_SERVED.keys(), "served, and said not to be"
    assert all(len(reason) > 10 for reason in NOT_SERVED.values())
    assert {int(code) for code in extension().read_table()["not-served"]} == NOT_SERVED.keys()


def test_a_refusal_says_why():
    assert refusal(31_999) == " request type 31999 not supported"
    assert refusal(200050) == " request type 200050 not supported: there is no pop consumption; consume by push or pull"


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_the_tests_that_are_named_exist():
    page = extension()
    lines = [*(line for server in page.SERVED for line in page.code_lines(server)), *page.mqadmin_lines()]
    missing = set()
    for line in lines:
        file, _, function = line.test.partition("::")
        if not (ROOT / file).is_file() or function not in functions_in(ROOT / file):
            missing.add((line.name, line.test))
    assert not missing


def test_a_difference_is_a_sentence_that_a_reader_can_judge():
    page = extension()
    lines = [*(line for server in page.SERVED for line in page.code_lines(server)), *page.mqadmin_lines()]
    assert not [line.name for line in lines if line.difference and len(line.difference) < 20]


def test_tables_are_whole():
    page = extension()
    for name in ("broker", "namesrv", "client", "not-served", "mqadmin"):
        head, _, *rows = page.shown(name).splitlines()
        assert rows
        assert {row.count("|") for row in rows} == {head.count("|")}

"""The layout is the design: imports point one way, store <- ha <- cluster <- public, without cycles; codecs do no I/O."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("store", "ha", "cluster")
PUBLIC = ("client", "spark")  # twinlog.client and twinlog.spark: for applications, so nothing of ours imports them.
LAYERS = (*FOLDERS, *PUBLIC)  # Each may import itself and what stands before it.
CODECS = ("store/record/message.py", "ha/wire/protocol.py", "cluster/remoting/command.py")
INPUT_OUTPUT = {"trio", "socket", "asyncio", "anyio", "ssl", "selectors", "threading"}


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "twinlog" else ("twinlog", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """`ha` of twinlog.ha.slave.client; "" of modules that are not ours."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "twinlog" else ""


FILES = {module_name(file): file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))}
FILES |= {module_name(file): file for file in (ROOT / "twinlog" / f"{name}.py" for name in PUBLIC)}


def imports(source: str, module: str, *, is_package: bool = False, at_run_time: bool = False) -> set[str]:
    """Name every module that the source imports, also inside functions; `from a import b` gives a and a.b.

    With at_run_time, leave out what stands under `if TYPE_CHECKING:`, which no interpreter ever follows.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *filter(None, [node.module])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
        elif at_run_time and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return found


def imports_of(module: str, *, at_run_time: bool = False) -> set[str]:
    file = FILES[module]
    return imports(file.read_text(), module, is_package=file.name == "__init__.py", at_run_time=at_run_time)


def upward(module: str, imported: set[str]) -> set[str]:
    """Pick the imports that leave the module's layer towards a higher one."""
    above = LAYERS[LAYERS.index(layer_of(module)) + 1 :]
    return {name for name in imported if layer_of(name) in above}


def test_every_folder_is_linked():
    """What Python imports is what lies at the top."""
    for folder in FOLDERS:
        assert (ROOT / "twinlog" / folder).readlink() == Path("..", folder)


def test_nothing_is_imported_by_the_names_of_folders():
    """`import store` would find another module of an application's."""
    assert {module for module in FILES if {name.split(".")[0] for name in imports_of(module)} & set(FOLDERS)} == set()


@pytest.mark.parametrize("module", FILES)
def test_imports_point_downwards(module):
    assert not upward(module, imports_of(module))


def test_there_are_no_import_cycles():
    graph = {module: imports_of(module, at_run_time=True) & FILES.keys() - {module} for module in FILES}
    # A package's own __init__.py is not a user of the modules in it: names that it passes on are no cycle.
    graph = {m: {name for name in used if not m.startswith(f"{name}.")} for m, used in graph.items()}
    TopologicalSorter(graph).prepare()  # Raises CycleError, which names the modules of the cycle.


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_do_no_input_or_output(codec):
    """A codec is bytes in, events out: so are the modules of ours that it imports, however far down."""
    assert (ROOT / codec).is_file()
    seen: set[str] = set()
    waiting = {module_name(ROOT / codec)}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        imported = imports_of(module, at_run_time=True)
        assert not {name.split(".")[0] for name in imported} & INPUT_OUTPUT, module
        waiting |= imported & FILES.keys() - seen


SPARK = re.compile(r"twinlog\.cluster\.pipeline\.(session|datasource|stream|job|job_runner|export|daily|submit\.\w+)")


def test_few_modules_know_spark():
    """What is compared, and how, runs and is tested without it."""
    knowing = {module for module in FILES if {name.split(".")[0] for name in imports_of(module)} & {"pyspark", "py4j"}}
    assert {module for module in knowing if not SPARK.fullmatch(module)} == set()


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_has_modules(layer):
    """An empty list of files would make the tests above pass for nothing."""
    assert [module for module in FILES if layer_of(module) == layer]


def test_the_reader_sees_every_form_of_import():
    source = """
import a.b, trio as t
from ..ha import client
from . import flush
def late():
    from twinlog.cluster.admin.admin import Admin
if TYPE_CHECKING:
    import typed
"""
    seen = imports(source, "twinlog.store.record.message")
    of_ours = {
        "twinlog.ha",
        "twinlog.ha.slave.client",
        "twinlog.store",
        "twinlog.store.services.flush",
        "twinlog.cluster.admin.admin",
    }
    assert seen >= {"a.b", "trio", "typed", *of_ours}
    assert "typed" not in imports(source, "twinlog.store.record.message", at_run_time=True)
    above = {
        "twinlog.ha",
        "twinlog.ha.slave.client",
        "twinlog.cluster.admin.admin",
        "twinlog.cluster.admin.admin.Admin",
    }
    assert upward("twinlog.store.record.message", seen) == above

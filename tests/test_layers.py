"""The layout is the design: imports point one way, store <- ha <- cluster <- public, without cycles; codecs do no I/O."""

import ast
import re
from collections import Counter
from collections.abc import Set
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.product import FILES, FOLDERS, PUBLIC, ROOT, imports, imports_of, module_name

# All packages, and modules that stand lower than the rest of their package: each imports only what stands before it.
ORDER = [
    "store.errors",
    "store.role",
    "store.retention",
    "store.util",
    "store.config",
    "store.hooks",
    "store.record",
    "store.log",
    "store.queue",
    "store.index",
    "store.integrity",
    "store.recovery",
    "store.read",
    "store.services",
    "store.truncation",
    "store",
    "store.offline",
    "store.offline.verify",
    "store.offline.copy",
    "ha.errors",
    "ha.peer",
    "ha.election",
    "ha.compare",
    "ha.policy",
    "ha.statistics",
    "ha.wire",
    "ha.config",
    "ha.master",
    "ha.slave",
    "ha",
    "cluster",
    "cluster.etcd",
    "cluster.config.group_secret",
    "cluster.remoting.codes",
    "cluster.remoting.errors",
    "cluster.remoting.tls",
    "cluster.remoting",
    "cluster.remoting.headers",
    "cluster.client",
    "cluster.client.consume",
    "cluster.broker.watchdog",
    "cluster.http.config",
    "cluster.broker.config",
    "cluster.pipeline.sources",
    "cluster.config",
    "cluster.broker.stats",
    "cluster.broker.filter",
    "cluster.broker.delay",
    "cluster.namesrv",
    "cluster.broker.security",
    "cluster.broker.settings",
    "cluster.broker.config_changes",
    "cluster.broker.tables",
    "cluster.broker.consume",
    "cluster.broker.transactions",
    "cluster.broker.roles.forward",
    "cluster.broker.roles.gate",
    "cluster.broker.group",
    "cluster.broker.peers",
    "cluster.observe",
    "cluster.broker.roles",
    "cluster.broker.status",
    "cluster.broker.reconfigure",
    "cluster.admin",
    "cluster.client.sync",
    "cluster.mqadmin",
    "cluster.broker.send",
    "cluster.http.server",
    "cluster.pipeline.tables",
    "cluster.pipeline.topics.connection",
    "cluster.pipeline.sink",
    "cluster.pipeline.topics",
    "cluster.cli.common",
    "cluster.dashboard.model",
    "cluster.broker.processors",
    "cluster.http",
    "cluster.pipeline.audit",
    "cluster.pipeline.ledger",
    "cluster.cli.members",
    "cluster.cli.log",
    "cluster.broker",
    "cluster.dashboard.view",
    "cluster.pipeline.jobs",
    "cluster.pipeline.report",
    "cluster.metrics",
    "cluster.dashboard",
    "cluster.cli.run",
    "cluster.cli.demo",
    "cluster.cli",
    "cluster.testing",
    "cluster.pipeline.submit",
]
LAYERS = (*FOLDERS, *PUBLIC)  # Each may import itself and what stands before it.
CODECS = (
    "store/record/message.py",
    "ha/wire/protocol.py",
    "cluster/remoting/command.py",
    "cluster/remoting/member_auth.py",
    "cluster/etcd/protocol.py",
    "cluster/etcd/gateway.py",
)
INPUT_OUTPUT = {"trio", "socket", "asyncio", "anyio", "ssl", "selectors", "threading"}


def layer_of(module: str) -> str:
    """`ha` of twinlog.ha.slave.client; "" of modules that are not ours."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "twinlog" else ""


def upward(module: str, imported: Set[str]) -> set[str]:
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


def place_of(module: str) -> int:
    """Where it stands in ORDER: itself, or its package."""
    name = module.removeprefix("twinlog.")
    return ORDER.index(name if name in ORDER else name.rpartition(".")[0])


def test_packages_have_one_order():
    """Nobody imports what stands behind it: no package is a part of a cycle, whatever its files."""
    for module in (each for each in FILES if layer_of(each) in FOLDERS and FILES[each].name != "__init__.py"):
        used = {
            name for name in imports_of(module, at_run_time=True) & FILES.keys() if FILES[name].name != "__init__.py"
        }
        behind = {name for name in used if place_of(name) > place_of(module)}
        assert not behind, f"{module} imports {behind}"


def test_every_package_of_the_order_is_there_and_says_what_it_is():
    packages = {module for module, file in FILES.items() if file.name == "__init__.py"}
    assert {f"twinlog.{name}" for name in ORDER} <= FILES.keys()
    for package in packages:
        text = ast.get_docstring(ast.parse(FILES[package].read_text())) or ""
        assert text, package
        assert len(text.splitlines()) <= 15, package
        if any(module.rpartition(".")[0] == package for module in FILES.keys() - packages):
            assert package.removeprefix("twinlog.") in ORDER, package


def test_no_package_is_crowded():
    """A reader takes in what is there at once."""
    sizes = Counter(module.rpartition(".")[0] for module in FILES if FILES[module].name != "__init__.py")
    assert {package: size for package, size in sizes.items() if size > 25} == {}


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


def test_test_modules_share_nothing_directly():
    """What two of them need is in a module of its own beside them: a test file can be read, moved or deleted alone."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        imported = imports(file.read_text(), ".".join(file.relative_to(ROOT).with_suffix("").parts))
        found = {name for name in imported if re.match(r"tests\.(\w+\.)*test_", name)}
        assert not found, f"{file.relative_to(ROOT)} imports {found}"


SPARK = re.compile(
    r"twinlog\.(spark|cluster\.pipeline\.(jobs\.\w+|(tables|topics)\.(datasource|stream)|sink\.writers|submit\.\w+))"
)


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
from ..ha import config
from . import errors
def late():
    from twinlog.cluster.admin.admin import Admin
if TYPE_CHECKING:
    import typed
"""
    seen = imports(source, "twinlog.store.message_store")
    of_ours = {
        "twinlog.ha",
        "twinlog.ha.config",
        "twinlog.store",
        "twinlog.store.errors",
        "twinlog.cluster.admin.admin",
    }
    assert seen >= {"a.b", "trio", "typed", *of_ours}
    assert "typed" not in imports(source, "twinlog.store.message_store", at_run_time=True)
    above = {
        "twinlog.ha",
        "twinlog.ha.config",
        "twinlog.cluster.admin.admin",
        "twinlog.cluster.admin.admin.Admin",
    }
    assert upward("twinlog.store.message_store", seen) == above

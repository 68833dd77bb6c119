"""The files of the product, and what they import."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("store", "ha", "cluster")
PUBLIC = (
    "client",
    "spark",
    "testing",
)  # twinlog.client and its like: for applications, so nothing of ours imports them.


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "twinlog" else ("twinlog", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


@cache
def imports_of(module: str, *, at_run_time: bool = False) -> frozenset[str]:
    file = FILES[module]
    return frozenset(imports(file.read_text(), module, is_package=file.name == "__init__.py", at_run_time=at_run_time))

"""The directive `log-events`: every event that a package may log, read from its source: page and code cannot differ."""

import ast
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
# Functions that log what they are given: the place of the event among their arguments, and the level.
PASS_ON = {"note": (0, "info"), "_log_end": (1, "info"), "_mend": (1, "warning"), "_failed": (1, "warning")}
SECTIONS = {
    "store": ("store",),
    "replication": ("ha",),
    "broker": ("cluster/broker", "cluster/config"),
    "network": ("cluster/remoting", "cluster/http", "cluster/dashboard"),
    "name server": ("cluster/namesrv",),
    "process": ("cluster/cli/run/notify.py",),
    "client library": ("cluster/client",),
}


@frozen(order=True)
class Event:
    """One line that may be written. `names` None: an event that is not written down where it is logged."""

    names: tuple[str, ...] | None
    level: str
    fields: tuple[str, ...]
    where: str


def events_in(path: Path) -> Iterator[Event]:
    """Every call that logs, in one file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        place, level = _place(node)
        if level and len(node.args) > place:
            fields = tuple(sorted(each.arg for each in node.keywords if each.arg not in (None, "exc_info", "always")))
            names = _texts(node.args[place])
            if names is not None or node.func.attr not in PASS_ON:
                yield Event(names, level, fields, f"{path.name}:{node.lineno}")


def _place(node: ast.Call) -> tuple[int, str]:
    assert isinstance(node.func, ast.Attribute)
    owner, name = node.func.value, node.func.attr
    if isinstance(owner, ast.Name) and owner.id == "log":
        return 0, LEVELS.get(name, "")
    return PASS_ON.get(name, (0, ""))


def _texts(node: ast.expr) -> tuple[str, ...] | None:
    """A text, or one of two."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.IfExp):
        both = _texts(node.body), _texts(node.orelse)
        return both[0] + both[1] if both[0] and both[1] else None
    return None


def files(section: str) -> list[Path]:
    """The section's source."""
    paths = [ROOT / part for part in SECTIONS[section]]
    return sorted(file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))


def table(section: str) -> str:
    """In Markdown, one row an event, worst first."""
    found: dict[tuple[str, str], set[str]] = {}
    for event in (each for file in files(section) for each in events_in(file) if each.names):
        for name in event.names or ():
            found.setdefault((event.level, name), set()).update(event.fields)
    order = list(dict.fromkeys(reversed(LEVELS.values())))
    rows = ["| level | event | fields |", "| --- | --- | --- |"]
    for level, name in sorted(found, key=lambda each: (order.index(each[0]), each[1])):
        fields = ", ".join(f"`{field}`" for field in sorted(found[level, name]))
        rows.append(f"| {level} | {name.replace('|', '&#124;')} | {fields} |")
    return "\n".join(rows)


class LogEventsDirective(SphinxDirective):
    required_arguments = 1  # A key of SECTIONS.
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        for file in files(self.arguments[0]):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(table(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("log-events", LogEventsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The directive `compatibility`: tables of request codes and of mqadmin's sub-commands.

Which codes are served comes from the dispatch tables, why others are not from cluster/remoting/dispatch.py; what differs,
and which test shows it, from docs/reference/compatibility.toml. A code, or a sub-command, that is missing there is an error.
"""

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.processors.send import SEND_CODES
from twinlog.cluster.broker.wiring import make_broker
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.dispatch import NOT_SERVED
from twinlog.cluster.remoting.request import handlers_of
from twinlog.store.config import StoreConfig

TABLE = Path(__file__).parents[1] / "reference" / "compatibility.toml"
MQADMIN_TEST = "tests/mqadmin/test_mqadmin.py::test_it_prints_what_it_prints_for_rocketmq"
PRIVATE = 20_000  # Codes from here to 29,999 are twinlog's own; docs/reference/requests.md.


@frozen
class Line:
    """A code or sub-command: what is different, empty for nothing, and the test that shows it."""

    name: str
    code: int | None = None
    difference: str = ""
    test: str = ""

    @property
    def state(self) -> str:
        return f"with a difference: {self.difference}" if self.difference else "as RocketMQ"


def broker_codes() -> set[int]:
    """What the main port of a broker serves."""
    with tempfile.TemporaryDirectory() as directory:
        broker = make_broker(BrokerConfig(), StoreConfig(root=Path(directory)))
    return {*broker.main_port, *map(int, SEND_CODES)}


def namesrv_codes() -> set[int]:
    """What a name server serves."""
    return set(handlers_of(NameServer()))


def client_codes() -> set[int]:
    """What brokers send to clients. 307 and 309 they pass on, so these are among the broker's."""
    return {39, 40, 220, 221, 326}


SERVED: Mapping[str, Callable[[], set[int]]] = {
    "broker": broker_codes,
    "namesrv": namesrv_codes,
    "client": client_codes,
}


def read_table(path: Path = TABLE) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text())


def code_lines(server: str) -> list[Line]:
    """Every code that `server` serves, of twinlog's own none. Raises KeyError that names what the table is without."""
    rows = read_table()[server]
    lines = []
    for code in sorted(SERVED[server]()):
        if PRIVATE <= code < PRIVATE + 10_000:
            continue
        name = RequestCode(code).name
        if str(code) not in rows:
            raise KeyError(f"{TABLE}: no row [{server}.{code}] for {name}")
        row = rows[str(code)]
        lines.append(Line(name, code, row.get("difference", ""), row["test"]))
    return lines


def mqadmin_lines() -> list[Line]:
    """Every sub-command of 4.9.7."""
    rows = read_table()["mqadmin"]
    return [Line(name, None, row.get("difference", ""), row.get("test", MQADMIN_TEST)) for name, row in rows.items()]


def shown(server: str) -> str:
    """The table of a server's codes, of `mqadmin`, or of the codes that are `not-served`, as Markdown."""
    if server == "not-served":
        names = read_table()["not-served"]
        rows = [(str(code), f"`{names[str(code)]}`", reason) for code, reason in sorted(NOT_SERVED.items())]
        return _markdown(("code", "request", "answered with code 3, because"), rows)
    if server == "mqadmin":
        return _markdown(
            ("sub-command", "prints", "shown by"),
            [(f"`{line.name}`", line.state, _test(line)) for line in mqadmin_lines()],
        )
    return _markdown(
        ("code", "request", "state", "shown by"),
        [(str(line.code), f"`{line.name}`", line.state, _test(line)) for line in code_lines(server)],
    )


def _test(line: Line) -> str:
    file, _, function = line.test.partition("::")
    return f"`{function}` in {file.removeprefix('tests/')}"


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


class CompatibilityDirective(SphinxDirective):
    required_arguments = 1  # broker, namesrv, client, not-served or mqadmin

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(TABLE))
        return self.parse_text_to_nodes(shown(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("compatibility", CompatibilityDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The directives of docs/reliability.md: the fault matrix with what came of it, from the results in docs/reliability/*.json.

matrix-*.json are runs of scripts/faults, planted-*.json those with `--planted`, rocketmq-*.json those with `--system rocketmq`,
soak-*.json those with `--soak`. A file holds one result, or a list of them. All files of a kind count, so that a page never says
more than what was kept.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "reliability"
sys.path.insert(0, str(ROOT))  # The rows are the tests' own.

from scripts.fault_matrix.checkers.verdict import ORACLES  # noqa: E402
from scripts.fault_matrix.failpoints import POINTS  # noqa: E402
from scripts.fault_matrix.rows import ROWS, SECONDS_TO_RECOVER, Row  # noqa: E402

Run = Mapping[str, Any]


@frozen
class Kept:
    """Result files of one kind."""

    documents: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, kind: str) -> "Kept":
        files = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{kind}-*.json"))]
        return cls(tuple(each for file in files for each in (file if isinstance(file, list) else [file])))

    @property
    def runs(self) -> list[Run]:
        return [run for document in self.documents for run in document["runs"]]

    def of_row(self, row: Row) -> list[Run]:
        return [run for run in self.runs if (run["row"], run["level"]) == (row.number, row.level)]


def number(value: float) -> str:
    return f"{value:,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def slowest(runs: Iterable[Run], of: str = "recovery_seconds") -> str:
    seconds = [each for run in runs for each in run.get(of, []) if each is not None]
    return f"{max(seconds):.1f}" if seconds else ""


def oracles_of(row: Row, runs: Sequence[Run]) -> str:
    """The letters, what cannot be promised, and of an oracle that came later how many of the runs it has judged."""
    later = {oracle: sum(oracle in run["oracles"] for run in runs) for oracle in row.oracles}
    told = [f"{oracle} in {count} of them" for oracle, count in later.items() if count < len(runs)]
    return row.oracles + "".join(f" ({each})" for each in [*told, *["a tail may be lost"] * row.only_tail])


def state(runs: Sequence[Run]) -> str:
    """In a word, and what failed."""
    if not runs:
        return "**not run**"
    failed = [run for run in runs if not run["holds"]]
    letters = sorted({oracle for run in failed for oracle, judged in run["oracles"].items() if not judged["holds"]})
    return f"**{len(failed)} of {len(runs)} fail: {' '.join(letters)}**" if failed else "holds"


def matrix() -> str:
    """A row each: what is promised, and what came of how many runs."""
    ours, head = (
        Kept.read("matrix"),
        (
            "#",
            "fault",
            "level",
            "judged by",
            "result",
            "runs",
            "acknowledged",
            "lost",
            "back within s",
            "another master within s",
        ),
    )
    rows = []
    for row in ROWS:
        runs = ours.of_row(row)
        acked, lost = (sum(run.get(key) or 0 for run in runs) for key in ("acknowledged", "lost"))
        known = (str(row.number), row.name, row.level, oracles_of(row, runs), state(runs))
        rows.append(
            (*known, str(len(runs)), number(acked), number(lost), slowest(runs), slowest(runs, "takeover_seconds"))
        )
    return table(head, rows)


def oracles() -> str:
    return table(("", "oracle"), sorted(ORACLES.items()))


def said(documents: Iterable[Mapping[str, Any]]) -> str:
    """Where, when, and by which commands."""
    commands: dict[str, list[str]] = {}
    for each in documents:
        facts = each["machine"]
        machine = (
            f"{facts['cpu_model']} with {facts['cpu_count']} cores, Linux {facts['kernel']}, Python {facts['python']}"
        )
        place = f"- {each['date'][:10]}, commit `{facts['commit'][:12]}`, {machine}"
        commands.setdefault(place, []).append(f"`{each['command']}`")
    return "\n".join(f"{place}: {', '.join(there)}" for place, there in commands.items())


def totals() -> str:
    """How long, how much, with which seeds."""
    kinds = {"rows": Kept.read("matrix"), "soak": Kept.read("soak")}
    rows = []
    for name, kept in kinds.items():
        runs = kept.runs
        seconds = sum(run["seconds"] for run in runs)
        seeds = sorted({run["seed"] for run in runs})
        span = ", ".join(map(str, seeds[:12])) + (f" and {len(seeds) - 12} more" if len(seeds) > 12 else "")
        sums = [sum(run.get(key) or 0 for run in runs) for key in ("operations", "acknowledged", "lost")]
        faults = sum(len(run.get("faults", ())) for run in runs)
        rows.append((name, f"{seconds / 3600:.1f}", str(len(runs)), number(faults), *map(number, sums), span))
    head = ("", "hours", "runs", "faults", "operations", "acknowledged", "lost", "seeds")
    return table(head, rows) + "\n\n" + said(each for kept in kinds.values() for each in kept.documents)


def points() -> str:
    """How many of the named places members have died at, and which are left."""
    told = " ".join(text for run in Kept.read("matrix").runs for text in run.get("faults", ()))
    left = [point.name for point in POINTS if f"{point.name} ({point.stage})" not in told]
    line = f"Members have died at {len(POINTS) - len(left)} of the {len(POINTS)} named places in these runs."
    return line + (f" Left: {', '.join(left)}." if left else "")


def soak() -> str:
    """The long run in numbers, and the memory of who lived long."""
    parts = []
    for run in Kept.read("soak").runs:
        back = sorted(each for each in run["recovery_seconds"] if each is not None)
        counts = (
            f"{run['seconds'] / 60:.0f} minutes, {len(run['faults'])} faults, {number(run['acknowledged'])} messages"
        )
        times = f"{back[len(back) // 2]:.1f} s (median) and at most {back[-1]:.1f} s after a fault had healed"
        parts.append(
            f"{counts} acknowledged at {run['level']}, {number(run['lost'])} lost; messages were acknowledged again {times}; "
            f"{state([run])}."
        )
        lives = {name: samples for name, samples in run["memory_mib"].items() if samples[-1][0] - samples[0][0] >= 600}
        head = (
            "process",
            "minutes of its life",
            "MiB at first",
            "MiB at a quarter",
            "half",
            "three quarters",
            "at last",
        )
        parts.append(table(head, [memory_row(name, samples) for name, samples in sorted(lives.items())]))
    return "\n\n".join(parts)


def memory_row(name: str, samples: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """At five moments of a life."""
    began, ended = samples[0][0], samples[-1][0]
    points = [
        min(samples, key=lambda sample: abs(sample[0] - (began + part * (ended - began))))
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    return (name.partition("#")[0], f"{began / 60:.0f} to {ended / 60:.0f}", *(f"{mib:.0f}" for _, mib in points))


def planted() -> str:
    """Whether each row notices the fault that was put into the product for it."""
    kept, rows = Kept.read("planted"), []
    for row in ROWS:
        runs = kept.of_row(row)
        noticed = [run for run in runs if not run["holds"] and not run.get("error")]
        letters = sorted(
            {oracle for run in noticed for oracle, judged in run["oracles"].items() if not judged["holds"]}
        )
        told = f"noticed in {len(noticed)} of {len(runs)} runs, by {' '.join(letters)}" if noticed else "**not shown**"
        rows.append((str(row.number), row.level, row.planted or "none", told))
    return table(("#", "level", "planted fault", "noticed"), rows) + "\n\n" + said(kept.documents)


def rocketmq() -> str:
    """What RocketMQ made of the same faults."""
    kept, of_ours, parts = Kept.read("rocketmq"), Kept.read("matrix").runs, []
    rows = []
    for run in kept.runs:
        wrong = [
            f"{oracle}: {each[0]}" for oracle, judged in sorted(run["oracles"].items()) if (each := judged["wrong"])
        ]
        ours = state([each for each in of_ours if each["row"] == run["row"]])
        counts = (number(run.get("acknowledged") or 0), "?" if run.get("lost") is None else number(run["lost"]))
        told = run.get("error") or "<br>".join(wrong)
        rows.append((str(run["row"]), run["name"], run["level"], *counts, state([run]), told[:600], ours))
    head = ("#", "fault", "level", "acknowledged", "lost", "RocketMQ", "what was wrong", "twinlog")
    parts.append(table(head, rows))
    left_out = {row: why for document in kept.documents for row, why in document.get("left_out", {}).items()}
    parts += [f"- row {row}: not run against RocketMQ, {why}" for row, why in left_out.items()]
    return parts[0] + "\n\n" + "\n".join(parts[1:]) + "\n\n" + said(kept.documents)


def track_record() -> str:
    """Every bug that was found this way."""
    found = tomllib.loads((RESULTS / "found.toml").read_text()).get("found", [])
    rows = [(str(each["date"]), each["by"], each["what"], f"`{each['again']}`", each["fix"]) for each in found]
    return table(("found", "by", "what", "to see it, before the fix", "the fix"), rows)


def promise() -> str:
    return f"within {SECONDS_TO_RECOVER:g} seconds"


PARTS: Mapping[str, Callable[[], str]] = {
    "matrix": matrix,
    "oracles": oracles,
    "totals": totals,
    "points": points,
    "soak": soak,
    "planted": planted,
    "rocketmq": rocketmq,
    "track-record": track_record,
}


# Which parts need which results.
KIND_OF = {
    "matrix": "matrix",
    "totals": "matrix",
    "points": "matrix",
    "soak": "soak",
    "planted": "planted",
    "rocketmq": "rocketmq",
}


class ReliabilityDirective(SphinxDirective):
    """Its argument names a part."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        for path in (Path(__file__), *RESULTS.iterdir()):
            self.env.note_dependency(str(path))
        part = self.arguments[0]
        if (kind := KIND_OF.get(part)) and not Kept.read(kind).documents:
            return self.parse_text_to_nodes("*No result of such a run is kept yet.*")
        return self.parse_text_to_nodes(PARTS[part]())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("reliability", ReliabilityDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

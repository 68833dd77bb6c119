"""Sync sends, alone or several messages together, to each system in turn: rate, latency and CPU time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from scripts.benchmarks.example import measure_example
from scripts.benchmarks.load import TOPIC, Load, measure
from scripts.benchmarks.report import Row, in_turn, scratch
from scripts.benchmarks.systems import Candidate, candidates

KINDS = ("rocketmq", "twinlog", "answer-only")
PROGRAMS = {"ours": (), "ours-binary": ("-Drocketmq.serialize.type=ROCKETMQ",), "rocketmq": ()}  # Options of the JVM.


@frozen(kw_only=True)
class ProduceBench:
    """All systems with all programs. `example`: the jar of RocketMQ's own program."""

    rounds: int
    candidates: Sequence[Candidate]
    load: Load
    programs: Sequence[str]
    example: Path | None

    def rows(self) -> Iterator[Row]:
        """Measure."""
        turns = [(candidate, program) for candidate in self.candidates for program in self.programs]
        # What only answers does so to headers in JSON.
        turns = [(candidate, program) for candidate, program in turns if candidate.role or program == "ours"]
        for number, (candidate, program) in in_turn(self.rounds, turns):
            with candidate.running(TOPIC) as system, scratch() as client:
                told = {"round": number, "system": candidate.kind, "role": candidate.role, "program": program}
                if program == "rocketmq":
                    assert self.example is not None
                    rows = measure_example(system, self.load, client, self.example)
                else:
                    rows = measure(system, self.load, client, options=PROGRAMS[program])
                yield from (told | row for row in rows)


def chosen(slaves: int, only: Sequence[str], batch: int) -> list[Candidate]:
    """The systems to measure. Who only answers knows no batches."""
    found = [candidate for candidate in candidates(slaves) if candidate.kind in (only or KINDS)]
    return [candidate for candidate in found if candidate.role or batch == 1]


def line(row: Row) -> str:
    """A row for the terminal."""
    name = f"{row['system']} {row['role'] or ''}"
    latency = " ".join(
        f"{key.removesuffix('_ms')} {row[key]:.3f}" for key in ("mean_ms", "p50_ms", "p99_ms", "max_ms") if key in row
    )
    cpu = " ".join(f"{who} {us:.1f}" for who, us in row["cpu_us_per_message"].items())
    return (
        f"round {row['round']}  {name:23} {row['threads']:3} threads {row['messages_per_s']:9.0f}/s"
        f"  {latency} ms  {row['program']}"
        f"  CPU us: {cpu}, others {row['other_cpu_percent']:.0f} %  {row['outcomes']}"
    )

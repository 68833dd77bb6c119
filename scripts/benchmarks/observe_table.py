"""The page docs/benchmarks/observe.md, generated from raw results."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.clients_table import INTRODUCTION
from scripts.benchmarks.report import Row, head, spread, table_line

NAMES = {"off": "not observed", "on": "observed"}
WHAT = """*Observed*: Prometheus scrapes `/metrics` of every member each {scrape_seconds} s, and a dashboard has one reader.
*Not observed*: `httpEnable=false`, no dashboard. A SYNC_MASTER with one slave takes sync sends of {body_bytes} bytes from
one RocketMQ client for {seconds} s after {first_warm_up_s} s to warm up, each time started fresh. Client, Prometheus and
dashboard share the machine with the brokers, so the rates differ by what these take. CPU is user and system time in
microseconds for each message. The difference is the median over the rounds of the pairs' own ratios."""


def observe_page(report: dict[str, Any], raw: str) -> str:
    """Return the page as Markdown."""
    rows = report["results"]
    introduction = head(
        INTRODUCTION.replace("clients_table.py", "observe_table.py"),
        report,
        raw,
        title="Observe: what metrics, scraping and the dashboard cost",
        what=WHAT.format(**report["setup"]),
    )
    lines = ["| client threads | | messages/s | master CPU us | slave CPU us | p99 ms |", "|--:|---|--:|--:|--:|--:|"]
    for threads in sorted({row["threads"] for row in rows}):
        these = [row for row in rows if row["threads"] == threads]
        for kind, name in NAMES.items():
            if own := [row for row in these if row["kind"] == kind]:
                cpu = [[row["cpu_us_per_message"][who] for row in own] for who in ("master", "slave-1")]
                cells = [spread((row["messages_per_s"] for row in own), ",.0f"), *(spread(each, ".1f") for each in cpu)]
                lines.append(table_line([str(threads), name, *cells, spread((row["p99_ms"] for row in own), ".1f")]))
        ratios = [differences(these, who) for who in ("master", "slave-1")]
        cells = [
            f"{_percent(median(each))} ({_percent(min(each))} to {_percent(max(each))})" if each else ""
            for each in ratios
        ]
        lines.append(f"| {threads} | *difference* | | {' | '.join(cells)} | |")
    return introduction + "\n".join(lines) + "\n"


def differences(rows: Sequence[Row], who: str) -> list[float]:
    """By how much more CPU a message takes when observed, in each round that has both; 0.02: two per cent."""
    cpu = {(row["round"], row["kind"]): float(row["cpu_us_per_message"][who]) for row in rows}
    rounds = sorted({number for number, _ in cpu})
    pairs = [(cpu.get((number, "off")), cpu.get((number, "on"))) for number in rounds]
    return [on / off - 1 for off, on in pairs if on is not None and off]


def line(row: Row) -> str:
    """One result, for the terminal."""
    cpu = " ".join(f"{who} {us:.1f}" for who, us in row["cpu_us_per_message"].items())
    return f"round {row['round']}  {row['kind']:3}  {row['threads']:3} threads {row['messages_per_s']:9.0f}/s  CPU us: {cpu}"


def _percent(share: float) -> str:
    return f"{share * 100:+.1f} %"

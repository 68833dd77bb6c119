"""The page docs/benchmarks/observe.md, generated from raw results."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.clients_table import INTRODUCTION

Row = dict[str, Any]
NAMES = {"off": "not observed", "on": "observed"}
WHAT = """*Observed*: Prometheus scrapes `/metrics` of every member each {scrape_seconds} s, and a dashboard has one reader.
*Not observed*: `httpEnable=false`, no dashboard. A SYNC_MASTER with one slave takes sync sends of {body_bytes} bytes from
one RocketMQ client for {seconds} s after {first_warm_up_s} s to warm up, each time started fresh. Client, Prometheus and
dashboard share the machine with the brokers, so the rates differ by what these take. CPU is user and system time in
microseconds for each message. The difference is the median over the rounds of the pairs' own ratios."""


def observe_page(report: dict[str, Any], raw: str) -> str:
    """Return the page as Markdown."""
    machine, setup, rows = report["machine"], report["setup"], report["results"]
    head = INTRODUCTION.replace("clients_table.py", "observe_table.py").format(
        **{**machine, "commit": machine["commit"][:12]},
        title="Observe: what metrics, scraping and the dashboard cost",
        what=WHAT.format(**setup),
        rounds=setup["rounds"],
        changed=f" with {machine['changed_files']} changed files" if machine["changed_files"] else "",
        raw=raw,
        date=report["date"][:10],
        command=report["command"],
    )
    lines = ["| client threads | | messages/s | master CPU us | slave CPU us | p99 ms |", "|--:|---|--:|--:|--:|--:|"]
    for threads in sorted({row["threads"] for row in rows}):
        these = [row for row in rows if row["threads"] == threads]
        for kind, name in NAMES.items():
            own = [row for row in these if row["kind"] == kind]
            if own:
                cells = [_spread([row["messages_per_s"] for row in own], ",.0f")]
                cells += [
                    _spread([row["cpu_us_per_message"][who] for row in own], ".1f") for who in ("master", "slave-1")
                ]
                lines.append(
                    f"| {threads} | {name} | {' | '.join([*cells, _spread([row['p99_ms'] for row in own], '.1f')])} |"
                )
        ratios = [differences(these, who) for who in ("master", "slave-1")]
        cells = [
            f"{_percent(median(each))} ({_percent(min(each))} to {_percent(max(each))})" if each else ""
            for each in ratios
        ]
        lines.append(f"| {threads} | *difference* | | {' | '.join(cells)} | |")
    return head + "\n".join(lines) + "\n"


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


def _spread(values: Sequence[float], form: str) -> str:
    middle, low, high = (format(number, form) for number in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"

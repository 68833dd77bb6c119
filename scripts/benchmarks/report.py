"""What every raw result says besides its results."""

import datetime
import sys
from typing import Any

from scripts.benchmarks.machine import facts


def new_report(benchmark: str, setup: dict[str, Any]) -> dict[str, Any]:
    """A raw result without results."""
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"scripts/bench {' '.join(sys.argv[1:])}",
        "machine": facts(),
        "setup": setup,
        "results": [],
    }

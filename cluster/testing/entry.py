"""Entry point of servers for tests: a command of `twinlog` that runs one, with its arguments.

What it saves of a start: structlog imports rich where that is installed, to paint tracebacks, which no server for tests does; and
while modules are imported, the collector of garbage visits all that was imported before, again and again.
"""

import gc
import sys
from importlib import import_module


def main() -> None:
    """Run the command, and exit with its status."""
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment]  # So that its import fails, as where it is not installed.
    import structlog  # noqa: F401

    del sys.modules["rich"]
    from twinlog.cluster.cli.main import main as twinlog

    import_module(f"twinlog.cluster.cli.run.{sys.argv[1]}")
    gc.freeze()
    gc.enable()
    twinlog()


if __name__ == "__main__":
    main()

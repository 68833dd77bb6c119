"""Entry point of servers for tests: `standalone`, or a command of `twinlog`, with its arguments.

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
    if sys.argv[1] == "standalone":
        from twinlog.cluster.testing.standalone import standalone

        _imported()
        standalone(sys.argv[2:])
    else:
        from twinlog.cluster.cli.main import main as twinlog

        import_module(f"twinlog.cluster.cli.run.{sys.argv[1]}")
        _imported()
        twinlog()


def _imported() -> None:
    """Collect garbage from now on, and none of what is there."""
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()

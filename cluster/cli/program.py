"""The entry point `twinlog`: without the extra `server` it says what to install, in one line.

It imports nothing before the command line but the standard library.
"""

import gc
import sys

INSTALL = "twinlog: the command line needs {name}, which is not installed here. Next: pip install 'twinlog[server]'"


def main() -> None:
    """Run the command line, and exit with its status."""
    gc.disable()  # Until the command is imported, see LateGroup.
    try:
        from twinlog.cluster.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _of_server():  # A fault of ours, or of another extra, which has its own words.
            raise
        sys.exit(INSTALL.format(name=name))


def _of_server() -> set[str]:
    """The packages of the extra, by the names that Python imports them by; all are those of the distributions."""
    import re
    from importlib.metadata import requires

    return {
        re.split(r"[^\w.-]", each, maxsplit=1)[0].replace("-", "_")
        for each in requires("twinlog") or ()
        if re.search(r"extra == ['\"]server['\"]", each)
    }


if __name__ == "__main__":
    main()

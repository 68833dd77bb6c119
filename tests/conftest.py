"""What this machine allows: tests that need Java or the super-user are skipped without it, never with CI=true."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

INTEROP = Path(__file__).parent / "interop"

# Seconds of one example say nothing on a busy machine; pytest's own time limit catches what hangs.
settings.register_profile("twinlog", deadline=None, print_blob=True)
settings.load_profile("twinlog")


@cache
def missing_java_tools() -> str:
    """Say which tools the real RocketMQ needs and this machine lacks, and what installs them; empty: none."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if "javac" not in missing:
        version = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
        found = re.search(r"javac (\d+)", version.stdout + version.stderr)
        if found is None or int(found[1]) < 17:
            missing.append("Java 17")
    return f"needs {', '.join(missing)}: apt install openjdk-17-jdk-headless maven" if missing else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_ci = os.environ.get("CI") == "true"
    for item in items:
        if INTEROP in item.path.parents and (reason := missing_java_tools()):
            if on_ci:
                raise pytest.UsageError(f"tests/interop {reason}")
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            if on_ci:
                raise pytest.UsageError(f"{item.nodeid} needs the super-user")
            item.add_marker(pytest.mark.skip(reason="needs the super-user"))

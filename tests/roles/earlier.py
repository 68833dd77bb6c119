"""An earlier state of this repository, to run members of: its own code, with the libraries of today."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
# The last commit in which the packages were called `store`, `ha` and `cluster`.
BEFORE_TWINLOG_WAS_ONE_PACKAGE = "763d80ba1db03e06096412363e5f41f0ec99ed9d"
# Libraries that it imports and that are no longer installed, by what the standard library has in their place.
NO_LONGER_INSTALLED = {"isal/isal_zlib.py": "from zlib import crc32\n"}
ENTRY = "import sys; from cluster.cli.main import main; sys.argv[0] = 'twinlog'; main()"


@frozen
class EarlierCode:
    """Product code of a commit, in a directory of its own."""

    directory: Path

    @property
    def program(self) -> Sequence[str]:
        return (sys.executable, "-P", "-c", ENTRY)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(self.directory)}


def checked_out(commit: str, directory: Path) -> EarlierCode:
    """Take the code of a commit out of git's history; skip the test where the history is not there, never with CI=true."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False).returncode:
        reason = f"needs the commit {commit[:7]}: git fetch --unshallow"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    directory.mkdir()
    archive = subprocess.run([*git, "archive", commit, "store", "ha", "cluster"], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    for module, code in NO_LONGER_INSTALLED.items():
        path = directory / module
        path.parent.mkdir()
        path.write_text(code)
    return EarlierCode(directory)

"""compose-spec's own JSON schema, by which Compose v2 judges a file: out of its Go module, fetched once for each machine."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.process_group import jars
from tests.support.process_group.go_programs import Module

MODULE = Module("github.com/compose-spec/compose-go/v2", "v2.4.7", "h1:WNpz5bIbKG+G+w9pfu72B1ZXr+Og9jez8TMEo8ecXPk=")
# What Compose 1.29.2 brings along, in Debian's package.
OF_DEBIAN = Path("/usr/lib/python3/dist-packages/compose/config/compose_spec.json")


def fetched() -> Path:
    """The schema of a fixed version; its sum is checked."""

    def fetch(folder: Path) -> None:
        shutil.copy(MODULE.source() / "schema" / "compose-spec.json", folder)

    return jars.made_once(jars.cache_dir() / "compose-go-2.4.7", fetch) / "compose-spec.json"


def load(path: Path) -> Any:
    return json.loads(path.read_text())

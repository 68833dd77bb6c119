"""The scenarios of the foreign clients, built once for each machine."""

import os
import subprocess
from pathlib import Path

from tests.support.process_group import jars

HERE = Path(__file__).parent


def go() -> Path:
    """The Go client's scenarios, compiled. Modules are downloaded the first time (go.sum pins them)."""
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]

    def build(folder: Path) -> None:
        cache = jars.cache_dir() / "go"
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOPATH": str(cache), "GOCACHE": str(cache / "build")}
        command = ["go", "build", "-modcacherw", "-o", str(folder / "scenarios"), "."]
        subprocess.run(command, cwd=HERE / "go", env=environment, check=True, timeout=300)

    return jars.made_once(jars.cache_dir() / "go-programs" / jars.digest(sources), build) / "scenarios"


def java_classes() -> Path:
    """The Java client's scenarios, compiled against 5.3.3."""
    return jars.classes(HERE / "java", jars.VERSION_5)


def java(namesrv: str, home: Path, program: str = "Scenarios") -> list[str]:
    """The command that runs them, or another class of the folder, against a name server."""
    class_path = ":".join(jars.class_path(jars.VERSION_5, sources=HERE / "java"))
    return ["java", "-Xmx256m", *jars.OPEN_MODULES, f"-Duser.home={home}", "-cp", class_path, program, namesrv]

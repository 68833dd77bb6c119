"""The scenarios of the foreign clients, built once for each machine."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.process_group import jars

HERE = Path(__file__).parent
GO_CLIENT = "github.com/apache/rocketmq-client-go/v2"
# What stands before a number of seconds in its internal/client.go, and the number in a quick one.
QUICK_SECONDS = {
    "_PullNameServerInterval = ": 1,
    "_HeartbeatBrokerInterval = ": 2,
    "_RebalanceInterval = ": 2,
    r"PullMessage\(.*\n.*\n.*\n.*context.WithTimeout\(ctx, ": 5,
}


def require_go() -> None:
    """Skip the test on a machine without go; in CI it fails."""
    if shutil.which("go") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs go: apt install golang-go")


def go(*, quick: bool = False) -> Path:
    """The Go client's scenarios, compiled. Modules are downloaded the first time (go.sum pins them).

    `quick`: it asks for routes each second instead of each 30 s, tells of its consumers and shares out queues each 2 s instead of
    each 30 and 20 s, and gives up a pull without an answer after 5 s instead of 30 s, also one whose connection is lost.
    """
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]
    name = f"{jars.digest([*sources, Path(__file__)])}-quick" if quick else jars.digest(sources)

    def build(folder: Path) -> None:
        cache = jars.cache_dir() / "go"
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOPATH": str(cache), "GOCACHE": str(cache / "build")}

        def run(*arguments: str) -> str:
            command = ["go", *arguments]
            return subprocess.check_output(command, cwd=HERE / "go", env=environment, text=True, timeout=300)

        replaced = []
        if quick:
            copy = folder / "client"
            shutil.copytree(json.loads(run("mod", "download", "-modcacherw", "-json", GO_CLIENT))["Dir"], copy)
            timers = copy / "internal" / "client.go"
            timers.write_text(_with_intervals(timers.read_text()))
            (folder / "go.mod").write_text(f"{sources[1].read_text()}\nreplace {GO_CLIENT} => {copy}\n")
            shutil.copy(sources[2], folder)
            replaced = [f"-modfile={folder / 'go.mod'}"]
        run("build", "-modcacherw", *replaced, "-o", str(folder / "scenarios"), ".")

    return jars.made_once(jars.cache_dir() / "go-programs" / name, build) / "scenarios"


def go_short() -> Path:
    """The Go example of docs/clients.md, compiled with the same client."""
    source, module = HERE / "short" / "main.go", [HERE / "go" / name for name in ("go.mod", "go.sum")]

    def build(folder: Path) -> None:
        cache = jars.cache_dir() / "go"
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOPATH": str(cache), "GOCACHE": str(cache / "build")}
        for file in (source, *module):
            shutil.copy(file, folder)
        command = ["go", "build", "-modcacherw", "-o", "short", "."]
        subprocess.check_output(command, cwd=folder, env=environment, timeout=300)

    return jars.made_once(jars.cache_dir() / "go-programs" / jars.digest([source, *module]), build) / "short"


def _with_intervals(source: str) -> str:
    for before, seconds in QUICK_SECONDS.items():
        source, found = re.subn(rf"({before})\d+", rf"\g<1>{seconds}", source)
        assert found == 1, before
    return source


def java_classes() -> Path:
    """The Java client's scenarios, compiled against 5.3.3."""
    return jars.classes(HERE / "java", jars.VERSION_5)


def java(namesrv: str, home: Path, program: str = "Scenarios") -> list[str]:
    """The command that runs them, or another class of the folder, against a name server."""
    class_path = ":".join(jars.class_path(jars.VERSION_5, sources=HERE / "java"))
    return ["java", "-Xmx256m", *jars.OPEN_MODULES, f"-Duser.home={home}", "-cp", class_path, program, namesrv]

"""Programs of public Go modules, and small ones of ours that use some, built once for each machine. A module's sum pins it, and
its own go.sum what it needs.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from attrs import frozen

from tests.support.process_group import jars


@frozen
class Module:
    """A version of a module, and the program that `package` of it is."""

    name: str
    version: str
    sum: str
    package: str = "."
    set_version: str = ""  # The variable that a release build sets.

    def source(self) -> Path:
        """The folder of its source text; the first call downloads it."""
        found = json.loads(_go(Path.cwd(), "mod", "download", "-modcacherw", "-json", f"{self.name}@{self.version}"))
        assert found["Sum"] == self.sum, found["Sum"]
        return Path(found["Dir"])

    def program(self) -> Path:
        """The program; the first call builds it."""

        def build(folder: Path) -> None:
            flags = f"-s -w -X {self.set_version}={self.version}" if self.set_version else "-s -w"
            source = self.source()
            _go(
                source,
                "build",
                "-modcacherw",
                "-trimpath",
                f"-ldflags={flags}",
                f"-o={folder / 'program'}",
                self.package,
            )

        short = self.name.removeprefix("github.com/").replace("/", "-")
        return jars.made_once(jars.cache_dir() / "go-programs" / f"{short}-{self.version}", build) / "program"


TOXIPROXY = Module(
    "github.com/Shopify/toxiproxy/v2", "v2.5.0", "h1:i4LPT+qrSlKNtQf5QliVjdP08GyAH8+BUIc9gT0eahc=", "./cmd/server"
)
COMPOSE = Module(
    "github.com/docker/compose/v2",
    "v2.40.3",
    "h1:XeYkQu1svDtyfZPv5nTwFryQ25ZJMkIlc4pz9HalMPI=",
    "./cmd",
    "github.com/docker/compose/v2/internal.Version",
)


def own(source: Path, name: str) -> Path:
    """A program of ours, whose modules its go.mod and go.sum pin; the first call builds it."""

    def build(folder: Path) -> None:
        _go(source, "build", "-modcacherw", "-trimpath", "-ldflags=-s -w", f"-o={folder / name}", ".")

    files = [source / each for each in ("main.go", "go.mod", "go.sum")]
    return jars.made_once(jars.cache_dir() / "go-programs" / f"{name}-{jars.digest(files)}", build) / name


def _go(folder: Path, *arguments: str) -> str:
    """Its build cache, a gigabyte, goes when it has ended: a program is built once. $GOCACHE: one for several, as in .ci/run."""
    with tempfile.TemporaryDirectory() as build_cache:
        environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOPATH": str(jars.cache_dir() / "go")}
        environment |= {"GOCACHE": os.environ.get("GOCACHE", build_cache), "CGO_ENABLED": "0", "GOWORK": "off"}
        done = subprocess.run(
            ["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

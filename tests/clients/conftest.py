"""The foreign clients, built once for each machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import jars

HERE = Path(__file__).parent
GO_CLIENT = "Go client v2.1.2"


def go_program() -> Path:
    """The Go client's scenarios, compiled. Modules are downloaded the first time (go.sum pins them)."""
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]

    def build(folder: Path) -> None:
        cache = jars.cache_dir() / "go"
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOPATH": str(cache), "GOCACHE": str(cache / "build")}
        command = ["go", "build", "-modcacherw", "-o", str(folder / "scenarios"), "."]
        subprocess.run(command, cwd=HERE / "go", env=environment, check=True, timeout=300)

    return jars.made_once(jars.cache_dir() / "go-programs" / jars.digest(sources), build) / "scenarios"


def java_program(version: str, namesrv: str, home: Path) -> list[str]:
    """The command that runs the Java client's scenarios."""
    class_path = ":".join(jars.class_path(version, sources=HERE / "java"))
    return ["java", "-Xmx256m", *jars.OPEN_MODULES, f"-Duser.home={home}", "-cp", class_path, "Scenarios", namesrv]


@pytest.fixture(params=[GO_CLIENT, "Java client 5.3.3"])
def scenarios(request, tmp_path):
    """A function that runs one client's scenarios against a name server and returns the lines that it printed."""

    def run(namesrv: str) -> list[str]:
        is_go = request.param == GO_CLIENT
        command = [str(go_program()), namesrv] if is_go else java_program(jars.VERSION_5, namesrv, tmp_path)
        environment = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        (tmp_path / "client.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout.splitlines()

    if request.param == GO_CLIENT and shutil.which("go") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("go is needed: apt install golang-go")
        pytest.skip("needs go: apt install golang-go")
    return run

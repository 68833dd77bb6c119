"""The real RocketMQ's jars, and our small Java classes compiled against them, once for each machine.

Maven copies the class path that pom.xml names into the cache, one folder for each RocketMQ release. Folders are made
under another name and renamed when whole, so that an interrupted or parallel run leaves no half a class path behind.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

VERSION = "4.9.7"
VERSION_5 = "5.3.3"  # For tests of store directories.
POM = Path(__file__).with_name("pom.xml")
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JAVA_SOURCES = Path(__file__).parents[1] / "clients" / "java"

# RocketMQ 4.9 unmaps files and reads netty's internals by reflection; Java 17 allows it only when told so.
OPEN_MODULES = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


def cache_dir() -> Path:
    """Where jars and compiled classes are kept between runs: TWINLOG_CACHE, else the user's cache directory."""
    own = os.environ.get("TWINLOG_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinlog"


def jars(version: str = VERSION) -> Path:
    """Return the folder with every jar that the given release needs; the first call downloads them (20 s)."""

    def copy(folder: Path) -> None:
        command = ["mvn", "-B", "-q", "-f", str(POM), COPY, "-DincludeScope=runtime"]
        run([*command, f"-Drocketmq.version={version}", f"-DoutputDirectory={folder}"], timeout_s=600)

    return made_once(cache_dir() / "jars" / f"{version}-{digest([POM])}", copy)


def classes(sources: Path = JAVA_SOURCES, version: str = VERSION) -> Path:
    """Return the folder with the Java files below `sources`, compiled against the given release."""
    files = sorted(sources.glob("*.java"))

    def compile_all(folder: Path) -> None:
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars(version)}/*", "-d", str(folder)]
        run([*command, *map(str, files)], timeout_s=120)

    return made_once(cache_dir() / "classes" / f"{version}-{digest(files)}", compile_all)


def class_path(version: str = VERSION, *, sources: Path | None = None) -> list[str]:
    """Return the class path of a release as a list of its entries, with our own classes first where asked for."""
    entries = [str(jar) for jar in sorted(jars(version).glob("*.jar"))]
    return entries if sources is None else [str(classes(sources, version)), *entries]


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder; what `make` puts into it the first time becomes visible as a whole."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            whole = Path(unfinished, "whole")
            whole.mkdir()
            make(whole)
            try:
                whole.rename(folder)
            except OSError:  # Another run was faster; its folder is as good as ours.
                if not folder.exists():
                    raise
    return folder


def run(command: list[str], *, timeout_s: float) -> None:
    """Run a command to its end. Raises RuntimeError with the last of what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-4000:]
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")


def digest(files: Iterable[Path]) -> str:
    """Name content by its bytes: an edited pom or source makes a new folder instead of a stale one."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]

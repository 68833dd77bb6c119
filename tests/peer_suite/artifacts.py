"""RocketMQ's published integration tests, fetched and made ready once for each machine."""

import os
import subprocess
import zipfile
from pathlib import Path

from tests.support.process_group import jars
from tests.support.process_group.rocketmq import QUICK_START

HERE = Path(__file__).parent
PACKAGE = "org.apache.rocketmq.test."
_POM, _SOURCES = HERE / "pom.xml", HERE / "java"
# One needs brokers of DLedger inside of its own JVM, the other is what broadcast tests have in common.
_NO_TESTS = ("dledger", "BaseBroadCastIT")


def libraries() -> Path:
    """The folder with the tests' jar and all that it needs; the first call downloads them."""

    def copy(folder: Path) -> None:
        command = ["mvn", "-B", "-q", "-f", str(_POM), jars.COPY, "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={folder}"], timeout_s=600)

    return jars.made_once(jars.cache_dir() / "jars" / f"peer-{jars.digest([_POM])}", copy)


def own_classes() -> Path:
    """Our two classes, compiled: the base of all tests, and what runs them."""
    files = sorted(_SOURCES.glob("*.java"))

    def compile_all(folder: Path) -> None:
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{libraries()}/*", "-d", str(folder)]
        _run([*command, *map(str, files)], timeout_s=120)

    return jars.made_once(jars.cache_dir() / "classes" / f"peer-{jars.digest([*files, _POM])}", compile_all)


def test_classes() -> list[str]:
    """The names of the integration tests' classes, without the package that they share."""
    (jar,) = libraries().glob("rocketmq-test-*-tests.jar")
    with zipfile.ZipFile(jar) as archive:
        names = [
            name.removesuffix(".class").replace("/", ".") for name in archive.namelist() if name.endswith("IT.class")
        ]
    found = [name.removeprefix(PACKAGE) for name in names if not any(word in name for word in (*_NO_TESTS, "$"))]
    return sorted(found)


def command(namesrv: str, home: Path) -> list[str]:
    """A JVM that runs the classes it is told on stdin against the cluster behind a name server."""
    return [
        "java",
        "-Xmx768m",
        *QUICK_START,
        *jars.OPEN_MODULES,
        f"-Dpeer.namesrv={namesrv}",
        f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}/logs",
        "-cp",
        os.pathsep.join([str(own_classes()), f"{libraries()}/*"]),
        "twinlog.peer.ClassRunner",
    ]


def _run(arguments: list[str], *, timeout_s: float) -> None:
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-4000:]
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{said}")

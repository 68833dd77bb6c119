"""The examples of docs/testing.md, section "In a container": their text, and those in Java compiled with what they need."""

import os
import re
import subprocess
from pathlib import Path

from tests.docker.compose import ROOT
from tests.support.process_group import jars

PAGE = ROOT / "docs" / "testing.md"
POM = Path(__file__).with_name("pom.xml")
GENERIC = Path(__file__).with_name("Generic.java")
# No image but ours can be had, and ports are published on this machine, also if that is a container itself.
ENVIRONMENT = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


def blocks(language: str) -> list[str]:
    """The examples of the section in a language."""
    section = PAGE.read_text().partition("\n## In a container\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def libraries() -> Path:
    """The folder with testcontainers, the starter of Spring and all that they need; the first call downloads them."""

    def copy(folder: Path) -> None:
        command = ["mvn", "-B", "-q", "-f", str(POM), jars.COPY, "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={folder}"], timeout_s=600)

    return jars.made_once(jars.cache_dir() / "jars" / f"testcontainers-{jars.digest([POM])}", copy)


def compiled(folder: Path) -> str:
    """The class path with the page's classes and ours, compiled into the folder."""
    files = [GENERIC]
    for text in blocks("java"):
        name = re.findall(r"^public class (\w+)", text, re.MULTILINE)[0]
        files.append(folder / f"{name}.java")
        files[-1].write_text(text)
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{libraries()}/*", "-d", str(folder)]
    _run([*command, *map(str, files)], timeout_s=120)
    return f"{folder}:{libraries()}/*"


def java(class_path: str, main: str, *arguments: str) -> str:
    """What the program prints on stdout."""
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.logUseSlf4j=true"]
    return _run(["java", *options, "-cp", class_path, main, *arguments], timeout_s=120)


def _run(command: list[str], *, timeout_s: float) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **ENVIRONMENT}, check=False
    )
    assert done.returncode == 0, (
        f"{command[0]} ended with {done.returncode}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    )
    return done.stdout

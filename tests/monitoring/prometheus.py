"""Debian's Prometheus under test: started on loopback with the configuration that we ship, asked over its API."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from tests.support.process_group.ports import HOST, free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy/prometheus"
NEEDED = ("prometheus", "promtool")


def missing() -> str:
    """What these tests need and this machine lacks; empty: nothing."""
    tools = [tool for tool in NEEDED if shutil.which(tool) is None]
    return f"needs {' and '.join(tools)}: apt install prometheus" if tools else ""


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@frozen
class Prometheus:
    """`address`: of its API."""

    address: str

    def get(self, path: str, **fields: str) -> Any:
        query = urllib.parse.urlencode(fields)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> dict[str, float]:
        """The samples now, by their labels as JSON, without where they were scraped."""
        found = {}
        for each in self.get("query", query=expression)["result"]:
            labels = {name: value for name, value in each["metric"].items() if name not in ("job", "instance")}
            found[json.dumps(labels, sort_keys=True)] = float(each["value"][1])
        return found

    def value(self, expression: str) -> float | None:
        """Of the only sample; None: there is none."""
        values = list(self.query(expression).values())
        assert len(values) <= 1, expression
        return values[0] if values else None

    def wait_for(self, expression: str, wanted: float) -> None:
        """Wait until a query has this value."""
        found: list[float | None] = []

        def is_so() -> bool:
            found[:] = [self.value(expression)]
            return found == [wanted]

        try:
            wait_for(is_so, expression)
        except AssertionError as error:
            raise AssertionError(f"{expression} is {found}, not {wanted}") from error


def shipped(targets: dict[str, list[str]], directory: Path, interval: str) -> Path:
    """local.yml, for these targets by service."""
    config = yaml.safe_load((DEPLOY / "local.yml").read_text())
    config["global"] = {"scrape_interval": interval, "scrape_timeout": "1s", "evaluation_interval": interval}
    config["rule_files"] = [str(DEPLOY / name) for name in config["rule_files"]]
    for group in config["scrape_configs"][0]["static_configs"]:
        group["targets"] = targets[group["labels"]["service"]]
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def prometheus(targets: dict[str, list[str]], directory: Path, *, interval: str = "1s") -> Iterator[Prometheus]:
    """Running, until the end of the block."""
    address = f"{HOST}:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={shipped(targets, directory, interval)}",
        f"--web.listen-address={address}",
    ]
    command += [f"--storage.tsdb.path={directory / 'tsdb'}", "--log.level=warn"]
    with (directory / "prometheus.log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            wait_for(lambda: _is_ready(address) or process.poll() is not None, "Prometheus is ready")
            assert process.poll() is None, (directory / "prometheus.log").read_text()
            yield Prometheus(address)
        finally:
            process.terminate()
            process.wait(20)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.1)
        return False

"""A standalone Spark cluster of processes that know nothing of this checkout: a master, workers, and drivers by spark-submit.

Each worker has an address of its own in 127.0.0.0/8, as Spark runs the second copy of a slow task only on another host. Every
process runs in a directory of its own with an environment of its own; twinlog comes to it by the archive of scripts/spark-env.
Where the super-user runs this, each worker has a mount namespace of its own, so that a path may be another disk there.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from attrs import define, field

from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process, answers
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "environment"  # The name by which tasks see the archive.
PYTHON = f"./{ENVIRONMENT}/bin/python"
START_S = 240  # Of a JVM, on a machine that does much else.
# What Spark is told of every process: each of a handful of JVMs on two cores starts sooner, and takes little memory.
IN_HASTE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": IN_HASTE,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": IN_HASTE,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}


def spark_home() -> Path:
    """The installed Spark: jars, and the scripts that start its processes."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def alone(directory: Path, command: Sequence[str], **variables: str) -> list[str]:
    """The command in this directory, with no variable of this process, and no program of this checkout in PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not each.startswith(str(ROOT)))
    kept = {"PATH": path, "HOME": str(directory), "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_DIRS": str(directory)}
    kept |= {name: os.environ[name] for name in ("JAVA_HOME", "TZ") if name in os.environ}
    return [
        "env",
        "-i",
        f"--chdir={directory}",
        *(f"{name}={value}" for name, value in (kept | variables).items()),
        *command,
    ]


class Master(Process):
    """The standalone master, on free ports of loopback."""

    def __init__(self, directory: Path) -> None:
        self.port, self.web_port = free_port(), free_port()
        self.url = f"spark://{HOST}:{self.port}"
        command = [str(spark_home() / "bin/spark-class"), "org.apache.spark.deploy.master.Master", "--host", HOST]
        command += ["--port", str(self.port), "--webui-port", str(self.web_port)]
        variables = {**_OF_DAEMONS, "SPARK_LOCAL_IP": HOST, "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
        super().__init__("Spark master", alone(directory, command, **variables), log=directory / "log")

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: answers(self.web_port), f"an answer on port {self.web_port}", timeout_s=START_S)

    def alive_workers(self) -> int | None:
        """How many are registered and alive, as its page has it; None: it does not answer yet."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.web_port}/json/", timeout=20) as answer:
                found: int = json.load(answer)["aliveworkers"]
        except (OSError, json.JSONDecodeError):  # The port is open before the page is there: 404, or another page.
            return None
        return found


def _with_own_mounts() -> list[str]:
    """The beginning of a command that runs in a new mount namespace; nothing where that is not allowed."""
    command = ["unshare", "--mount"]
    if shutil.which(command[0]) is None:
        return []
    tried = subprocess.run([*command, "mount", "--bind", "/", "/"], capture_output=True, timeout=10, check=False)
    return command if tried.returncode == 0 else []


class Worker(Process):
    """A worker with one core, on 127.0.0.NUMBER. Its executors are its children."""

    def __init__(self, directory: Path, master: Master, number: int) -> None:
        self.host = f"127.0.0.{number}"
        command = [*_with_own_mounts(), str(spark_home() / "bin/spark-class"), "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", self.host]
        command += ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(directory), master.url]
        variables = {**_OF_DAEMONS, "SPARK_LOCAL_IP": self.host}
        super().__init__(f"Spark worker {self.host}", alone(directory, command, **variables), log=directory / "log")

    def executors(self) -> list[psutil.Process]:
        """Its executors, which are JVMs."""
        found = psutil.Process(self.pid).children(recursive=True) if self.running else []
        return [each for each in found if _is_executor(each)]

    @property
    def has_own_mounts(self) -> bool:
        """True where the super-user runs this and may mount."""
        return Path(f"/proc/{self.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()

    @contextmanager
    def seeing(self, directory: Path, other: Path) -> Iterator[None]:
        """Meanwhile this worker and each executor that it starts find another directory at this path; see has_own_mounts."""
        inside = ["nsenter", f"--target={self.pid}", "--mount"]
        subprocess.run([*inside, "mount", "--bind", str(other), str(directory)], check=True, timeout=10)
        try:
            yield
        finally:
            subprocess.run([*inside, "umount", "--lazy", str(directory)], check=True, timeout=10)

    def path(self, found: Path) -> Path:
        """The same path as this worker sees it."""
        return Path(f"/proc/{self.pid}/root{found}")

    def vanish(self) -> list[psutil.Process]:
        """Kill the worker alone, as the kernel does when memory is short; returns the executors that it leaves behind."""
        left = self.executors()
        self.send_signal(signal.SIGKILL)
        wait_for(lambda: not self.running, f"the end of {self.name}")
        return left


_OF_DAEMONS = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": IN_HASTE, "SPARK_NO_DAEMONIZE": "1"}


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


class Driver(Process):
    """A script by spark-submit in client mode. What it prints is in `log`."""

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        assert self._popen is not None
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name}: not within {seconds:.0f} s\n{self.tail()}") from None

    def lines(self) -> list[str]:
        """What it printed, over all its starts."""
        return self.log.read_text(errors="replace").splitlines()


@define(eq=False)
class Standalone:
    """A master and its workers. `driver_place`: where drivers run; the archive lies unpacked there, as `environment`."""

    directory: Path
    archive: Path
    master: Master
    workers: tuple[Worker, ...]
    driver_place: Path
    _drivers: list[Driver] = field(factory=list)
    _left: list[psutil.Process] = field(factory=list)  # Executors whose worker was killed.

    def driver(self, name: str, script: str, *arguments: str, settings: Mapping[str, str] | None = None) -> Driver:
        """A driver that was not started yet. `script`: relative to `driver_place`, or anywhere."""
        command = [str(spark_home() / "bin/spark-submit"), "--master", self.master.url]
        command += ["--archives", f"{self.archive}#{ENVIRONMENT}"]
        command += [
            word for key, value in (SETTINGS | (settings or {})).items() for word in ("--conf", f"{key}={value}")
        ]
        command = alone(self.driver_place, [*command, script, *arguments], PYSPARK_PYTHON=PYTHON)
        made = Driver(f"driver {name}", command, log=self.directory / f"driver-{name}.log")
        self._drivers.append(made)
        return made

    def place(self, script: Path) -> str:
        """A copy of a script where drivers run: Spark puts the directory of the script first in the import path."""
        shutil.copy(script, self.driver_place)
        return script.name

    def executors(self) -> list[psutil.Process]:
        """Those of all workers."""
        return [executor for worker in self.workers for executor in worker.executors()]

    def wait_executors(self, count: int) -> list[psutil.Process]:
        """Until so many run."""
        wait_for(lambda: len(self.executors()) == count, f"{count} executors", timeout_s=START_S)
        return self.executors()

    def wait_workers(self, count: int) -> None:
        """Until so many are registered and alive."""
        wait_for(lambda: self.master.alive_workers() == count, f"{count} workers", timeout_s=START_S)

    def vanish(self, worker: Worker) -> None:
        """Kill a worker; its executor is left to itself."""
        self._left += worker.vanish()

    def tails(self) -> str:
        """The last lines of everybody, for a test that fails."""
        of_executors = sorted(self.directory.glob("worker-*/app-*/*/stderr"), key=lambda file: file.stat().st_mtime)
        texts = [each.tail(15) for each in (*self._drivers, self.master, *self.workers)]
        for file in of_executors[-4:]:
            texts.append("\n".join([f"--- {file}", *file.read_text(errors="replace").splitlines()[-25:]]))
        return "\n".join(texts)

    def end(self) -> None:
        """End what was left."""
        for driver in self._drivers:
            driver.stop(timeout_s=20)
        for executor in self._left:
            if executor.is_running():
                executor.kill()


@contextmanager
def running(directory: Path, archive: Path, unpacked: Path, *, workers: int = 2) -> Iterator[Standalone]:
    """A cluster with so many workers, all registered. `unpacked`: what is in the archive, for drivers."""
    place = directory / "driver"
    place.mkdir(parents=True)
    (place / ENVIRONMENT).symlink_to(unpacked)
    with ExitStack() as stack:
        stack.callback(_remove_environments, directory)
        master = stack.enter_context(Master(directory / "master"))
        members = [Worker(directory / f"worker-{number}", master, number + 2) for number in range(workers)]
        for member in members:  # All at once: each start takes seconds.
            stack.enter_context(member)
        cluster = Standalone(directory, archive, master, tuple(members), place)
        stack.callback(cluster.end)
        cluster.wait_workers(workers)
        yield cluster


def _remove_environments(directory: Path) -> None:
    """What each executor unpacked and fetched: hundreds of MB."""
    for found in (*directory.glob(f"worker-*/app-*/*/{ENVIRONMENT}"), *directory.glob("*/spark-*")):
        shutil.rmtree(found, ignore_errors=True)


def build_archive(directory: Path) -> Path:
    """scripts/spark-env."""
    archive = directory / "twinlog-spark-env.tar.gz"
    began = time.monotonic()
    done = subprocess.run(
        [ROOT / "scripts/spark-env", archive], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"{done.stdout.splitlines()[-1]}, made in {time.monotonic() - began:.0f} s")
    return archive


def unpack(archive: Path, directory: Path) -> Path:
    """As executors do it. Returns the directory."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(directory)], check=True, timeout=120)
    return directory

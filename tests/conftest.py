"""What this machine allows, and how long a test may take.

Tests that need Java or the super-user are skipped where it is missing, never with CI=true.
"""

import inspect
import os
import re
import shutil
import subprocess
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
import trio
from hypothesis import settings

from twinlog.store.util import disk_space

NEED_JAVA = {
    Path(__file__).parent / name
    for name in (
        "interop",
        "handover",
        "pairs",
        "clients",
        "peer_suite",
        "mqadmin",
        "python_client",
        "spark/test_rocketmq.py",
    )
}
NEEDS_DOCKER = Path(__file__).parent / "docker"  # And Java's client.
NEEDS_ETCD = Path(__file__).parent / "etcd"
NEEDS_CHROMIUM = Path(__file__).parent / "browser"  # Debian's: playwright's own would have to be downloaded.
NEED_JVM = {Path(__file__).parent / name for name in ("spark", "spark_cluster", "lake")}  # No compiler and no Maven.
NEEDS_LAKE = Path(__file__).parent / "lake"
# Seconds for a test in these folders, where it has no mark of its own; each wait inside is bounded more tightly.
TIME_LIMITS_S = {
    Path(__file__).parent / folder: limit
    for folder, limit in {
        "python_client": 120,  # The first test of a broker starts it: two JVMs.
        "interop": 240,  # A handful of JVMs on two cores.
        "pairs": 240,
        "handover": 180,  # The first test of a turn plays the turns before it that were not played yet.
        "docker": 180,
        "spark": 120,  # The first test also waits for the JVM.
        "spark_cluster": 300,  # Six JVMs on two cores.
        "lake": 240,  # A test that is ended within py4j takes all others with it.
    }.items()
}

# Seconds of one example say nothing on a busy machine; pytest's own time limit catches what hangs.
settings.register_profile("twinlog", deadline=None, print_blob=True)
settings.load_profile("twinlog")


@pytest.fixture(autouse=True)
def plain_log():
    """A command that a test runs in this process sets up the log; the next test starts without that.

    Tracebacks are Python's: those that rich paints, with all variables, take a third of a second each.
    """
    structlog.reset_defaults()
    *before, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before, renderer])


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch):
    """How full this machine's disk is decides no test: a store refuses messages on a full one."""
    monkeypatch.setattr(disk_space, "usage_ratio", lambda path: 0.5)


@cache
def missing_java_tools() -> str:
    """Say which tools the real RocketMQ needs and this machine lacks, and what installs them; empty: none."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if "javac" not in missing and is_older_than_17("javac", r"javac (\d+)"):
        missing.append("Java 17")
    return f"needs {', '.join(missing)}: apt install openjdk-17-jdk-headless maven" if missing else ""


@cache
def missing_jvm() -> str:
    """The same for Spark, which brings all else that it needs."""
    if shutil.which("java") is None or is_older_than_17("java", r'version "(\d+)'):
        return "needs Java 17: apt install openjdk-17-jre-headless"
    return ""


@cache
def missing_etcd() -> str:
    """The same for etcd: Debian's, and Go to build the newest."""
    missing = [tool for tool in ("etcd", "etcdctl", "go") if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}: apt install etcd-server etcd-client golang-go" if missing else ""


@cache
def missing_docker() -> str:
    """The same for containers."""
    missing = [tool for tool in ("docker", "docker-compose", "go") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt install docker.io docker-compose golang-go"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        return "needs a Docker daemon: scripts/with-docker scripts/test docker"
    return missing_java_tools()


def is_older_than_17(tool: str, version: str) -> bool:
    said = subprocess.run([tool, "-version"], capture_output=True, text=True, check=False)
    found = re.search(version, said.stdout + said.stderr)
    return found is None or int(found[1]) < 17


@pytest.hookimpl(trylast=True)  # After the conftest files below, which may set time limits.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        limits = [limit for folder, limit in TIME_LIMITS_S.items() if folder in item.path.parents]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(*limits))
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = cancelled_when_late(item.obj, limit_s=time_limit_s(item) * 0.95)
        if os.environ.get("CI") == "true" and (reason := missing_for(item)):
            raise pytest.UsageError(f"{item.nodeid} {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := missing_for(item):
        pytest.skip(reason)  # From here, not by a mark: pytest folds what is skipped at one place into one line.


def missing_for(item: pytest.Item) -> str:
    """Say what a test needs and this machine lacks; empty: nothing."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        return "needs the super-user"
    if NEEDS_DOCKER in item.path.parents:
        return missing_docker()
    if NEEDS_ETCD in item.path.parents:
        return missing_etcd()
    if NEEDS_CHROMIUM in item.path.parents:
        return "" if Path("/usr/bin/chromium").exists() else "needs /usr/bin/chromium: apt install chromium"
    if NEEDS_LAKE in item.path.parents and find_spec("deltalake") is None:
        return "needs .venv-lake: scripts/test lake"
    if NEED_JAVA & {item.path, *item.path.parents}:
        return missing_java_tools()
    return missing_jvm() if NEED_JVM & set(item.path.parents) else ""


def time_limit_s(item: pytest.Item) -> float:
    """Read what pytest-timeout goes by: the mark, else the setting in pyproject.toml."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0] if mark and mark.args else item.config.getini("timeout"))


def cancelled_when_late(test: Callable[..., Awaitable[None]], *, limit_s: float) -> Callable[..., Awaitable[None]]:
    """Cancel a test that waits for something that does not come, and show where each of its tasks waits.

    pytest-timeout raises out of a signal handler, which is right where the loop itself is stuck, but breaks trio where
    it is idle. A little before that, and in real time also under autojump_clock, this ends the test the ordinary way.
    """

    @wraps(test)
    async def limited(*args: object, **kwargs: object) -> None:
        stacks: list[str] = []

        def give_up() -> None:
            stacks.extend(task_stacks(trio.lowlevel.current_root_task()))
            scope.cancel()

        def wake_loop() -> None:
            with suppress(trio.RunFinishedError):  # The test may end in this very moment.
                token.run_sync_soon(give_up)

        token = trio.lowlevel.current_trio_token()
        timer = threading.Timer(limit_s, wake_loop)
        timer.daemon = True
        timer.start()
        try:
            with trio.CancelScope() as scope:
                await test(*args, **kwargs)
        finally:
            timer.cancel()
        if scope.cancelled_caught:
            pytest.fail(f"still waiting after {limit_s:.0f} s\n" + "\n".join(stacks), pytrace=False)

    return limited


def task_stacks(task: trio.lowlevel.Task | None) -> list[str]:
    """Format where a task and all that descend from it wait, oldest first, without trio's own service tasks."""
    if task is None:
        return []
    frames = traceback.StackSummary.extract(task.iter_await_frames())
    ours = [frame for frame in frames if f"{os.sep}site-packages{os.sep}" not in frame.filename]
    stacks = [f"task {task.name}\n" + "".join(traceback.format_list(ours))] if ours else []
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            stacks += task_stacks(child)
    return stacks

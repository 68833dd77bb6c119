"""Plugin of pytest: the fixtures `rocketmq`, `rocketmq_topic`, `rocketmq_topics` and `rocketmq_cluster`.

Fixtures are no coroutines, so that they work with any plugin for asyncio and trio, and with tests that have no loop. pytest loads
this module in each run: all else is imported when a fixture is used.
"""

import sys
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twinlog.cluster.testing.cluster import RocketMQCluster
    from twinlog.cluster.testing.process import ServerProcess
    from twinlog.cluster.testing.server import RocketMQ

MARKERS = (
    "rocketmq(topics=(), queues=4): fresh topics for a test, which rocketmq_topics gives by these names",
    "rocketmq_cluster(slaves=1, sync=True, settings={}): what rocketmq_cluster starts; settings are keys of broker.conf",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the configuration file."""
    parser.addini("rocketmq_settings", "KEY=VALUE lines of broker.conf for the fixture rocketmq", type="linelist")
    parser.addini("rocketmq_port", "port of the name server of the fixture rocketmq; a free one by default")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> "Iterator[RocketMQ]":
    """A name server and a broker for all tests of this process."""
    from twinlog.cluster.testing.server import start_rocketmq

    settings, port = _settings(pytestconfig), _port(pytestconfig)
    with start_rocketmq(tmp_path_factory.mktemp("rocketmq"), settings=settings, port=port) as server:
        yield server


def _settings(config: pytest.Config) -> dict[str, str]:
    lines = config.getini("rocketmq_settings")
    if wrong := [line for line in lines if "=" not in line]:
        raise pytest.UsageError(f"rocketmq_settings: {wrong[0]!r}: expected KEY=VALUE, one on each line")
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def _port(config: pytest.Config) -> int | None:
    text = config.getini("rocketmq_port")
    if not text:
        return None
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise pytest.UsageError(f"rocketmq_port: {text!r}: expected 1 to 65535")
    return int(text)


@pytest.fixture
def rocketmq_topics(request: pytest.FixtureRequest, rocketmq: "RocketMQ") -> Mapping[str, str]:
    """The fresh topics of this test, by the names in its marker `rocketmq(topics=...)`."""
    names, queues = _topics_of(request.node)
    if not names:
        raise pytest.UsageError(
            f"{request.node.nodeid} uses rocketmq_topics and names no topics: add @pytest.mark.rocketmq(topics=['orders'])"
        )
    return {name: rocketmq.fresh_topic(name, queues=queues) for name in names}


def _topics_of(node: pytest.Item) -> tuple[tuple[str, ...], int]:
    given: dict[str, Any] = {"topics": (), "queues": 4, **_arguments(node, "rocketmq", {"topics", "queues"})}
    topics = given["topics"]
    return ((topics,) if isinstance(topics, str) else tuple(topics)), given["queues"]


def _arguments(node: pytest.Item, name: str, known: set[str]) -> dict[str, Any]:
    """The arguments of the nearest marker of this name."""
    mark = node.get_closest_marker(name)
    if mark is None:
        return {}
    if mark.args or mark.kwargs.keys() - known:
        wrong = ", ".join([*map(repr, mark.args), *sorted(mark.kwargs.keys() - known)])
        raise pytest.UsageError(
            f"{node.nodeid}: the marker {name} has no argument {wrong}: expected {'=, '.join(sorted(known))}="
        )
    return dict(mark.kwargs)


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest, rocketmq: "RocketMQ") -> str:
    """A fresh topic for this test, with the number of queues in its marker `rocketmq(queues=...)`, or four."""
    _, queues = _topics_of(request.node)
    return rocketmq.fresh_topic(request.node.name, queues=queues)


@pytest.fixture
def rocketmq_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[RocketMQCluster]":
    """A name server, a master and slaves for this test alone; its marker `rocketmq_cluster` says what kind."""
    from twinlog.cluster.testing.cluster import start_cluster

    arguments = _arguments(request.node, "rocketmq_cluster", {"slaves", "sync", "settings"})
    with start_cluster(tmp_path_factory.mktemp("rocketmq_cluster"), **arguments) as cluster:
        yield cluster


# ---- Logs in the report of a test that failed


def _processes() -> "list[ServerProcess]":
    process = sys.modules.get("twinlog.cluster.testing.process")
    return process.processes() if process is not None else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let what servers logged until now belong to earlier tests."""
    for process in _processes():
        process.begin_report()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what servers logged during a test that failed."""
    report = yield
    if report.failed:
        for process in _processes():
            if text := process.report():
                report.sections.append((f"Log of {process.name}", text))
    return report

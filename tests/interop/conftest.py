"""Fixtures for tests that drive the real RocketMQ."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process_group import rocketmq

HERE = Path(__file__).parent
TIME_LIMIT_S = 240  # A handful of JVMs on two cores; each wait inside is bounded more tightly.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIME_LIMIT_S))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory for stores and logs that is removed after the test: pytest itself would keep three of each."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def real_namesrv(root: Path) -> Iterator[rocketmq.NameServer]:
    """A real RocketMQ name server."""
    with rocketmq.NameServer(root / "real-namesrv") as namesrv:
        yield namesrv

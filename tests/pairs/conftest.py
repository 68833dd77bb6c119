"""Fixtures for tests in which a real RocketMQ and twinlog are master and slave of each other."""

from pathlib import Path

import pytest

from tests.interop.conftest import root as root

HERE = Path(__file__).parent
TIME_LIMIT_S = 240  # A handful of JVMs on two cores; each wait inside is bounded more tightly.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIME_LIMIT_S))

"""The chain of brokers that all tests of a module share: starting a JVM for each test would take minutes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.handover.chain import Chain

HERE = Path(__file__).parent
TIME_LIMIT_S = 120  # The first test of a turn plays the turn before.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIME_LIMIT_S))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    root = tmp_path_factory.mktemp("chain")
    with Chain(root) as chain:
        yield chain
    shutil.rmtree(root, ignore_errors=True)

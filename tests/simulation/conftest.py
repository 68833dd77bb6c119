"""Processes that run seeds, for all tests."""

from collections.abc import Iterator

import pytest

from tests.simulation.run import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool.open() as pool:
        yield pool

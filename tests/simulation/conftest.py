"""Processes that run seeds, for all tests."""

import os
from collections.abc import Iterator

import pytest

from tests.simulation.run import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """One beside each of xdist's workers; two for tests that are run one after the other."""
    with Pool.open(1 if "PYTEST_XDIST_WORKER" in os.environ else 2) as pool:
        yield pool

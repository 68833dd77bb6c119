"""The chain of brokers that all tests of a class share: starting a JVM for each test would take minutes."""

import shutil
from collections.abc import Iterator

import pytest

from tests.handover.chain import Chain


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes `opened` for each turn but the first of its class's TURNS."""
    if "opened" in metafunc.fixturenames:
        turns = metafunc.cls.TURNS
        ids = [f"{n}-{turns[n].broker}-after-{turns[n - 1].broker}s-{turns[n - 1].end}" for n in range(1, len(turns))]
        metafunc.parametrize("opened", range(1, len(turns)), ids=ids, indirect=True, scope="class")


@pytest.fixture(scope="class")
def opened(request: pytest.FixtureRequest, chain: Chain) -> Chain:
    """The broker of a turn, which has taken nothing yet, with what the turns before left."""
    chain.advance_to(request.param)
    return chain


@pytest.fixture(scope="class")
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain of the class's TURNS."""
    root = tmp_path_factory.mktemp("chain")
    with Chain(root, request.cls.TURNS) as chain:
        yield chain
    shutil.rmtree(root, ignore_errors=True)

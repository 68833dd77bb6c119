"""Fixtures for tests that drive the real RocketMQ."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process_group import rocketmq


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

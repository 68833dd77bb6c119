"""The archive and a cluster of two workers, once for the whole suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_cluster.standalone import Standalone, build_archive, running, unpack


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_archive(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """In a directory that it was not made for."""
    return unpack(archive, tmp_path_factory.mktemp("unpacked"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, archive: Path, unpacked: Path) -> Iterator[Standalone]:
    with running(tmp_path_factory.mktemp("spark"), archive, unpacked) as found:
        yield found

"""One JVM with the real rocketmq-tools 4.9.7 for all rows, and two clusters for it to look at."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mqadmin.clusters import Cluster, both_clusters
from tests.support.clients.java_client import JavaClient
from tests.support.process_group.rocketmq import make_home


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for stores and logs that is removed at the end."""
    path = tmp_path_factory.mktemp("mqadmin")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def client(root: Path) -> Iterator[JavaClient]:
    """The JVM. mqadmin does not run without its logback file."""
    make_home(root / "client")
    with JavaClient(root / "client", jvm_options=(f"-Drocketmq.home.dir={root / 'client'}",)) as client:
        yield client


@pytest.fixture(scope="session")
def clusters(root: Path, client: JavaClient) -> Iterator[tuple[Cluster, Cluster]]:
    """RocketMQ's and ours, set up the same."""
    with both_clusters(root, client) as clusters:
        yield clusters

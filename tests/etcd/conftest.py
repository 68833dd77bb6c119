"""Clusters of etcd for the tests here: one member of each version, shared by the tests of a file."""

import pytest

from tests.etcd.clients import config_of
from tests.support.process_group.etcd import DEBIAN, NEWEST, EtcdCluster
from twinlog.cluster.etcd.client import Etcd

VERSIONS = (DEBIAN, NEWEST)


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: version.number)
def cluster(request, tmp_path_factory):
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), version=request.param) as cluster:
        yield cluster


@pytest.fixture(params=VERSIONS, ids=lambda version: version.number)
def version(request):
    return request.param


@pytest.fixture
async def etcd(cluster, request):
    """A client whose keys no other test sees."""
    async with Etcd(config_of(cluster, prefix=f"/{request.node.name}/")) as etcd:
        yield etcd

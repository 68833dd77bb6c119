"""A client whose servers only exist in memory."""

import pytest

from tests.cluster.client.helpers import NAMESRV, NEIGHBOUR, FakeBroker
from twinlog.client import Client


@pytest.fixture
def broker(nursery):
    return FakeBroker(nursery)


@pytest.fixture
async def client(broker):
    async with Client(NAMESRV, connect=broker.connect) as running:
        yield running


@pytest.fixture
def topic(broker):
    """Two queues."""
    broker.topics["T"] = 2
    return "T"


@pytest.fixture
def neighbour(nursery, broker):
    """Another broker group, `a`, in every route."""
    there = FakeBroker(nursery)
    broker.neighbours["a"] = NEIGHBOUR, there
    return there

"""A client of this process, for requests to members."""

import pytest

from twinlog.cluster.remoting.client import RemotingClient


@pytest.fixture
async def client(nursery):
    client = RemotingClient()
    await nursery.start(client.run)
    return client

"""A name server, a master and a slave inside the test, and the command line against them."""

import sys
from copy import copy
from functools import partial

import pytest
import structlog
import trio
from attrs import define
from click.testing import CliRunner, Result

from tests.support.group import loopback
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.cli.main import cli
from twinlog.store.config import BrokerRole


@pytest.fixture(autouse=True)
def log_elsewhere(plain_log):
    """A command under test takes the place of sys.stdout, while brokers in another thread log."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))


@define
class Cluster:
    """What runs, and `twinlog` to look at it with."""

    members: loopback.Cluster
    master: Broker
    slave: Broker | None

    @property
    def namesrv(self) -> str:
        return self.members.namesrv

    async def twinlog(self, *arguments: str, stdin: str | bytes | None = None, ok: bool = True) -> Result:
        """Run a command as a shell would; with `ok` it must succeed."""
        runner = CliRunner(env={"NAMESRV_ADDR": self.namesrv})
        result = await trio.to_thread.run_sync(partial(runner.invoke, cli, arguments, input=stdin))
        if ok:
            assert result.exit_code == 0, result.output
        return result


async def slave_counts(master: Broker) -> None:
    """Until producers are answered on the slave's word; there is no event for it."""
    with trio.fail_after(10):
        while not any(connection.counted for connection in master.ha.statistics().connections):
            await trio.sleep(0.01)


@pytest.fixture
async def lone_master(nursery, tmp_path):
    """No slave has ever been there: what is sent is not as safe as promised."""
    members = await loopback.open_cluster(nursery, tmp_path)
    master, _ = await members.start("broker-a-0", BrokerRole.SYNC_MASTER)
    return Cluster(members, master, None)


@pytest.fixture
async def cluster(nursery, tmp_path):
    members = await loopback.open_cluster(nursery, tmp_path)
    master, _ = await members.start("broker-a-0", BrokerRole.SYNC_MASTER)
    slave, _ = await members.start("broker-a-1", BrokerRole.SLAVE)
    await slave_counts(master)
    return Cluster(members, master, slave)


def register_under(broker: Broker, address: str) -> None:
    """Let it register an address that is not its own."""
    settings = copy(broker.settings)
    settings.address = address
    broker.registration.settings = settings

"""A name server, a master and a slave inside the test, and the command line against them."""

import sys
from copy import copy
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio
from attrs import define, evolve
from click.testing import CliRunner, Result

from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.cli.main import cli
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import BrokerRole, StoreConfig

HOST = "127.0.0.1"
SERVER = ServerConfig(bind_address=HOST)


@pytest.fixture(autouse=True)
def log_elsewhere(plain_log):
    """A command under test takes the place of sys.stdout, while brokers in another thread log."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))


@define
class Cluster:
    """What runs, and `twinlog` to look at it with."""

    namesrv: str
    master: Broker
    slave: Broker | None

    async def twinlog(self, *arguments: str, stdin: str | bytes | None = None, ok: bool = True) -> Result:
        """Run a command as a shell would; with `ok` it must succeed."""
        runner = CliRunner(env={"NAMESRV_ADDR": self.namesrv})
        result = await trio.to_thread.run_sync(partial(runner.invoke, cli, arguments, input=stdin))
        if ok:
            assert result.exit_code == 0, result.output
        return result


async def start_broker(nursery: trio.Nursery, root: Path, namesrv: str, role: BrokerRole) -> Broker:
    broker = wiring.make_broker(
        BrokerConfig(
            broker_name="broker-a",
            broker_id=0 if role is not BrokerRole.SLAVE else 1,
            broker_ip1=HOST,
            broker_ip2=HOST,
            listen_port=0,
            namesrv_addr=namesrv,
        ),
        StoreConfig(root=root, broker_role=role, mapped_file_size_commit_log=1 << 20),
        HAConfig(listen_host=HOST),
        SERVER,
    )
    await nursery.start(broker.run)
    await broker.registration.registered.wait()
    return broker


async def slave_counts(master: Broker) -> None:
    """Until producers are answered on the slave's word; there is no event for it."""
    with trio.fail_after(10):
        while not any(connection.counted for connection in master.ha.statistics().connections):
            await trio.sleep(0.01)


async def start_namesrv(nursery: trio.Nursery) -> str:
    server = NameServer(evolve(NamesrvConfig(), kv_config_path=None), SERVER)
    return f"{HOST}:{await nursery.start(partial(server.run, HOST, 0))}"


@pytest.fixture
async def lone_master(nursery, tmp_path):
    """No slave has ever been there: what is sent is not as safe as promised."""
    namesrv = await start_namesrv(nursery)
    return Cluster(namesrv, await start_broker(nursery, tmp_path / "broker-a-0", namesrv, BrokerRole.SYNC_MASTER), None)


@pytest.fixture
async def cluster(nursery, tmp_path):
    namesrv = await start_namesrv(nursery)
    master = await start_broker(nursery, tmp_path / "broker-a-0", namesrv, BrokerRole.SYNC_MASTER)
    slave = await start_broker(nursery, tmp_path / "broker-a-1", namesrv, BrokerRole.SLAVE)

    await slave_counts(master)
    return Cluster(namesrv, master, slave)


def register_under(broker: Broker, address: str) -> None:
    """Let it register an address that is not its own."""
    settings = copy(broker.settings)
    settings.address = address
    broker.registration.settings = settings

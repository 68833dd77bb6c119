"""The other answer to what clients are told: the address of the members' container, for programs in other containers."""

from functools import partial

import pytest
import trio

from tests.docker.compose import BROKERS, NAMESRV, NETWORK, until_healthy
from tests.docker.conftest import project
from tests.support.process_group.up import twinlog

ADDRESS = f"{NETWORK}.10"
in_thread = trio.to_thread.run_sync


@pytest.fixture(scope="module")
def compose(image):
    with project(address=ADDRESS) as found:
        found("up", "-d")
        yield found


async def test_programs_in_containers_and_on_this_machine_reach_the_same_brokers(compose, daemon, image):
    await until_healthy(compose, *BROKERS)
    network = f"{compose.project}_default"
    inside = partial(daemon.containers.run, image, network=network, remove=True)
    said = await in_thread(partial(inside, command=["send", "Greetings", "from inside", "-n", "network:9876"]))
    assert said.startswith(b"SEND_OK")
    assert "from inside" in await in_thread(partial(twinlog, "consume", "Greetings", namesrv=NAMESRV))
    assert (await in_thread(partial(twinlog, "list", namesrv=NAMESRV))).count(ADDRESS) == len(BROKERS)


async def test_a_switchover_holds_producers_for_a_moment_only(compose):
    """Its slaves come from the address that they announce. Where they do not, a new master makes them wait."""
    said = await in_thread(compose.twinlog, "broker-a-0", "switchover", "--candidate", "broker-a-1", "--yes")
    pause_ms = int(said.rpartition("write pause ")[2].split()[0])
    assert pause_ms < 2000
    await until_healthy(compose, *BROKERS)

"""The cluster of docker-compose.yml in real containers: clients outside, a switchover, masters that die, and their way back.

Nobody types a failover: the group elects by itself.

One story, because a cluster of containers takes its time to start; each test goes on where the one before it ended.
"""

import hashlib
import json
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio

from tests.docker.compose import BROKERS, BROKERS_B, NAMESRV, NAMESRV_INSIDE, SERVICES, Compose, until, until_healthy
from tests.docker.java_inside import java_inside
from tests.support.clients.java_client import JavaClient, Sent, body
from tests.support.process_group.up import twinlog

TOPIC, SEED = "Orders", "docker"
COUNT_MAX = 3000  # Messages of a producer that is stopped before: a minute of them.
SECRET = "/var/lib/twinlog/group-secret"  # In the service `secret`.
ADDRESSES = {name: f"{name}:{10911 + 10 * number}" for number, name in enumerate(BROKERS)}
in_thread = trio.to_thread.run_sync


class Ledger:
    """What producers were told, by number of the message."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.next = 0

    def note(self, sent: list[Sent]) -> None:
        self.acknowledged |= {each.number for each in sent if each.ok}


@pytest.fixture(scope="module")
def ledger():
    return Ledger()


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    with JavaClient(tmp_path_factory.mktemp("java")) as client:
        yield client


@pytest.fixture(scope="module")
def producer(java, compose):
    return java.producer("docker-producers", NAMESRV, retries=3)


def members(compose: Compose, via: str) -> dict[str, dict]:
    found = json.loads(compose.twinlog(via, "list", "-o", "json"))
    return {each["name"]: each for each in found["members"]}


def roles(compose: Compose, via: str) -> dict[str, tuple[str, str]]:
    return {name: (each["role"], each["state"]) for name, each in members(compose, via).items()}


async def until_in_epoch(compose: Compose, epoch: int) -> dict[str, dict]:
    """Until each member says so; one that has no time to answer says nothing."""
    found: dict[str, dict] = {}

    def are_there() -> bool:
        found.update(members(compose, "broker-a-0"))
        assert all((each["epoch"] or 0) <= epoch for each in found.values()), found
        return [each["epoch"] for each in found.values()] == [epoch] * len(BROKERS)

    await until(are_there, f"epoch {epoch} everywhere")
    return found


def send(producer, ledger: Ledger, count: int) -> list[Sent]:
    sent = producer.send(TOPIC, count, first=ledger.next, seed=SEED)
    ledger.next += count
    ledger.note(sent)
    return sent


async def test_one_command_brings_it_up_healthy(compose):
    await in_thread(partial(compose, "up", "-d"))
    seconds = await until_healthy(compose, *SERVICES)
    print(f"healthy {seconds:.0f} s after `up` had returned")
    assert await in_thread(roles, compose, "broker-a-0") == {
        "broker-a-0": ("master", "serving"),
        "broker-a-1": ("slave", "streaming"),
        "broker-a-2": ("slave", "streaming"),
    }


async def test_each_has_a_network_of_its_own_and_its_name_as_address(compose):
    assert len({compose.ip(service) for service in SERVICES}) == len(SERVICES)
    inside, outside = (
        json.loads(said)["members"]
        for said in (
            await in_thread(compose.twinlog, "broker-a-0", "list", "-o", "json"),
            await in_thread(partial(twinlog, "list", "-o", "json", namesrv=NAMESRV)),
        )
    )
    assert {each["name"]: each["address"] for each in inside} == ADDRESSES
    assert {each["name"]: each["address"].rpartition(":")[0] for each in outside} == dict.fromkeys(BROKERS, "127.0.0.1")


async def test_a_java_client_outside_produces_through_loopback(compose, producer, ledger):
    sent = await in_thread(send, producer, ledger, 100)
    assert all(each.ok for each in sent)


async def test_the_command_line_outside_does_too(compose):
    sent = await in_thread(partial(twinlog, "send", "Greetings", "hello", "--count", "20", namesrv=NAMESRV))
    assert sent.count("SEND_OK") == 20
    assert (await in_thread(partial(twinlog, "consume", "Greetings", namesrv=NAMESRV))).count("hello") == 20


async def test_the_dashboard_answers_on_loopback(compose):
    def read() -> str:
        with urllib.request.urlopen("http://127.0.0.1:9877/", timeout=10) as answer:
            return answer.read().decode()

    page = await in_thread(read)
    assert all(name in page for name in BROKERS)


async def test_programs_in_other_containers_reach_the_same_brokers(compose, daemon, image):
    run = partial(daemon.containers.run, image, network=compose.network.name, remove=True)
    said = await in_thread(partial(run, ["send", "Greetings", "from inside", "-n", NAMESRV_INSIDE]))
    assert said.startswith(b"SEND_OK")
    arguments = ("consume", "Greetings", "--group", "outside")
    assert "from inside" in await in_thread(partial(twinlog, *arguments, namesrv=NAMESRV))


async def test_a_java_client_in_another_container_produces_and_consumes(compose, tmp_path):
    mqadmin = partial(java_inside, compose, tmp_path)
    assert "SEND_OK" in await in_thread(mqadmin, "sendMessage", "-t", "Greetings", "-p", "from-java-inside")
    assert "from-java-inside" in await in_thread(mqadmin, "consumeMessage", "-t", "Greetings")


async def test_switchover_by_the_command_line_in_a_container(compose, producer, ledger):
    await in_thread(compose.twinlog, "broker-a-0", "switchover", "--candidate", "broker-a-1", "--yes")
    assert (await in_thread(roles, compose, "broker-a-2"))["broker-a-1"] == ("master", "serving")
    sent = await in_thread(send, producer, ledger, 100)
    assert all(each.ok for each in sent)
    await until_healthy(compose, *BROKERS)


async def test_the_group_secret_is_changed_while_they_run(compose):
    """Each step by one command: all brokers read the file that the service has written."""
    (first,) = await in_thread(secrets, compose)
    change = partial(compose, "run", "--rm", "secret", "group", "secret")
    await in_thread(change, "add", SECRET)
    await until(lambda: [len(each) for each in secrets(compose)] == [2], "a second one")
    assert [each[0] for each in await in_thread(secrets, compose)] == [first[0]]
    await in_thread(change, "use", SECRET)
    await in_thread(change, "drop", SECRET)
    await until(lambda: [len(each) for each in secrets(compose)] == [1], "the second one alone")
    assert await in_thread(secrets, compose) != [first]
    await until_healthy(compose, *BROKERS)


def secrets(compose: Compose) -> list[list[str]]:
    """What the brokers sign with and accept; one entry when they agree."""
    found = members(compose, "broker-a-1")
    assert set(found) == set(BROKERS)
    return [list(each) for each in {tuple(each["secret_ids"]) for each in found.values()}]


async def test_a_slave_that_stands_still_is_unhealthy(compose):
    await in_thread(compose.signal_inside, "broker-a-2", "STOP")
    await until(lambda: compose.health("broker-a-2") == "unhealthy", "the frozen slave is unhealthy")
    assert compose.health("broker-a-0") == "healthy"
    await in_thread(compose.signal_inside, "broker-a-2", "CONT")
    await until_healthy(compose, *BROKERS)


def serving(compose: Compose, among: Sequence[str]) -> list[str]:
    """Who serves, by their own HTTP."""
    return [name for name in among if readiness(compose, name).get("state") == "serving"]


async def test_a_master_whose_process_dies_is_started_again_and_stays_master(compose):
    before = compose.container("broker-a-1").attrs["State"]["StartedAt"]
    await in_thread(compose.signal_inside, "broker-a-1", "KILL")
    await until(lambda: compose.container("broker-a-1").attrs["State"]["StartedAt"] != before, "Docker's restart")
    await until(lambda: serving(compose, BROKERS) == ["broker-a-1"], "the master is back")
    await until_healthy(compose, *BROKERS)
    await until_in_epoch(compose, 1)


async def test_a_paused_master_is_replaced_by_itself(compose):
    """It stands still with all its connections open. Afterwards it follows, and is the master again by a switchover."""
    slaves = ("broker-a-0", "broker-a-2")
    await in_thread(compose.container("broker-a-1").pause)
    seconds = await until(lambda: serving(compose, slaves), "an election")
    print(f"another one served {seconds:.1f} s after the pause")
    await in_thread(compose.container("broker-a-1").unpause)
    await until_healthy(compose, *BROKERS)
    assert (await until_in_epoch(compose, 2))["broker-a-1"]["role"] == "slave"
    await in_thread(compose.twinlog, "broker-a-0", "switchover", "--candidate", "broker-a-1", "--yes")
    await until_healthy(compose, *BROKERS)


async def test_a_killed_master_costs_nothing_that_was_acknowledged(compose, java, producer, ledger):
    """Its slaves are killed before, so that it holds messages that no producer was promised; alone they elect one of them."""
    job = producer.start_sending(TOPIC, COUNT_MAX, first=ledger.next, seed=SEED, pause_ms=20)
    await in_thread(partial(job.wait_answered, 50))
    slaves, ends = ("broker-a-0", "broker-a-2"), list[int]()
    async with trio.open_nursery() as nursery:
        for slave in slaves:
            nursery.start_soon(in_thread, compose.container(slave).kill)

    def has_grown() -> bool:
        """Between two looks that were answered."""
        if end := readiness(compose, "broker-a-1").get("written_offset", 0):
            ends.append(end)
        return bool(ends) and ends[-1] > ends[0]

    await until(has_grown, "bytes that only the master has")
    await in_thread(compose.container("broker-a-1").kill)
    for slave in slaves:
        await in_thread(compose.container(slave).start)
    ledger.note((await in_thread(partial(job.finish, stop=True))).sent)
    ledger.next += COUNT_MAX
    await until(lambda: serving(compose, slaves), "an election")
    await until_healthy(compose, *slaves)
    # One that has just started: Java's client looks for a new master every 30 s only.
    sent = await in_thread(send, java.producer("docker-producers-2", NAMESRV, retries=3), ledger, 50)
    assert all(each.ok for each in sent)


def readiness(compose: Compose, name: str) -> dict[str, Any]:
    """What a member says by its own HTTP; nothing while it does not answer, or has too much to say."""
    container = compose.container(name)
    if container.status != "running":
        return {}
    _, output = container.exec_run(["twinlog-probe", str(10914 + 10 * int(name[-1])), "/readyz"])
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError:
        return {}
    return found


async def test_the_old_master_comes_back_without_what_nobody_was_promised(compose):
    container = compose.container("broker-a-1")
    await in_thread(container.start)
    await until_healthy(compose, *BROKERS)
    found = await until_in_epoch(compose, 4)
    assert len({each["written_offset"] for each in found.values()}) == 1
    assert (found["broker-a-1"]["role"], found["broker-a-1"]["state"]) == ("slave", "streaming")
    kept = container.exec_run(["ls", "/var/lib/twinlog/broker-a-1/twinlog/divergent"])
    assert kept.exit_code == 0
    assert kept.output.strip()


async def test_every_acknowledged_message_is_read_by_a_java_client(compose, java, ledger):
    assert len(ledger.acknowledged) > 250
    consumer = java.consumer("docker-readers", NAMESRV, TOPIC)
    awaited = {digest(number) for number in ledger.acknowledged}
    got = await in_thread(consumer.bodies, awaited)
    print(f"acknowledged {len(awaited)}, found {len(awaited & got)}")
    assert awaited <= got
    consumer.shutdown()


def digest(number: int) -> str:
    return hashlib.sha1(body(SEED, number, 100)).hexdigest()


async def test_all_replicas_are_the_same_bytes(compose):
    await in_thread(compose.twinlog, "broker-a-0", "crosscheck")


async def test_a_stop_is_clean_and_quick_and_the_data_stays(compose):
    began = trio.current_time()
    await in_thread(partial(compose, "stop"))
    seconds = trio.current_time() - began
    print(f"stopped in {seconds:.1f} s")
    assert seconds < 20
    assert [compose.container(name).attrs["State"]["ExitCode"] for name in BROKERS] == [0, 0, 0]
    await in_thread(partial(compose, "up", "-d"))
    await until_healthy(compose, *BROKERS)
    again = await in_thread(partial(twinlog, "consume", "Greetings", "--group", "again", namesrv=NAMESRV))
    assert again.count("hello") == 20


async def test_a_second_group_takes_messages_beside_the_first(compose):
    """The profile two-groups, while the others run. A topic that is created now has queues on both masters."""
    began = trio.current_time()
    await in_thread(partial(compose, "--profile", "two-groups", "up", "-d"))
    await until_healthy(compose, *BROKERS_B)
    found = await in_thread(members, compose, "broker-a-0")
    masters = [each for each in found.values() if each["role"] == "master"]
    assert sorted(each["group"] for each in masters) == ["broker-a", "broker-b"]
    await in_thread(partial(twinlog, "topic", "create", "Both", "--queues", "2", namesrv=NAMESRV))
    sent = await in_thread(partial(twinlog, "send", "Both", "hello", "--count", "20", namesrv=NAMESRV))
    assert sent.count("SEND_OK") == 20
    assert {"broker-a", "broker-b"} <= {*sent.split()}
    assert (await in_thread(partial(twinlog, "consume", "Both", namesrv=NAMESRV))).count("hello") == 20
    print(f"a second group in {trio.current_time() - began:.1f} s")


async def test_down_leaves_nothing(compose):
    await in_thread(partial(compose, "--profile", "two-groups", "down", "--volumes"))
    assert compose.what_is_left() == {"containers": [], "networks": [], "volumes": []}

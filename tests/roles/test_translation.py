"""A real address translation: master and slave in networks without a route to each other, and clients in a third."""

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import namespaces, twinlog
from tests.support.process_group.namespaces import Namespace, publish
from tests.support.process_group.roles import Group, RoleBroker, Traffic
from tests.support.process_group.up import run

why_not = namespaces.can_be_made()
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(bool(why_not), reason=f"no network namespaces: {why_not}")]


def member(
    root: Path, number: int, port: int, own: Namespace, other: Namespace, clients: Namespace, **more: str
) -> RoleBroker:
    """Told to members as the other's gateway, to clients as theirs."""
    for_members, for_clients = 20911 + 1000 * number, 30911 + 1000 * number
    settings = {
        "brokerIP1": clients.gateway,
        "brokerPort1": str(for_clients),
        "brokerIP2": other.gateway,
        "brokerPort2": str(for_members),
        "haPort": str(for_members + 1),
        **more,
    }
    broker = RoleBroker(root, f"{own.gateway}:{port}", number, settings)
    broker.address = f"{clients.gateway}:{for_clients}"
    return broker


@contextmanager
def running(directory: Path, **more: str):
    with ExitStack() as stack:
        router, there = stack.enter_context(namespaces.translated("a", "b", "clients"))
        a, b, clients = there["a"], there["b"], there["clients"]
        namesrv = twinlog.NameServer(directory / "namesrv")
        router.run(namesrv.start)
        stack.callback(namesrv.stop)
        namesrv.address = f"{clients.gateway}:{namesrv.port}"
        brokers = [
            member(directory / f"m{number}", number, namesrv.port, own, other, clients, **more)
            for number, (own, other) in enumerate(((a, b), (b, a)))
        ]
        for broker, own, other in ((brokers[0], a, b), (brokers[1], b, a)):
            for_members, for_clients = int(broker.settings["brokerPort2"]), int(broker.settings["brokerPort1"])
            for distance in (-2, 0, 1):
                publish(router, other, for_members + distance, own, broker.port + distance)
            for distance in (-2, 0):
                publish(router, clients, for_clients + distance, own, broker.port + distance)
            own.run(broker.start)
            stack.callback(broker.stop)
        group = Group(namesrv, tuple(brokers))
        clients.run(group.wait_record)
        yield group, b, clients


@pytest.mark.parametrize("proof", [pytest.param("haAllowedSlaves", marks=pytest.mark.long), "haSecretFile"])
def test_roles_change_across_networks(tmp_path, proof):
    """Switchover, failover, return and reinit in traffic. Members are known by the translation's IP, or by their secret."""
    secret = tmp_path / "secret"
    settings = {"haAllowedSlaves": "198.51.100.0/24"}
    signs: tuple[str, ...] = ()
    if proof == "haSecretFile":
        run("group", "secret", "new", str(secret), namesrv="")
        settings, signs = {"haSecretFile": str(secret)}, ("--secret-file", str(secret))
    with running(tmp_path, **settings) as (group, b, clients):
        first, second = group.members

        async def play() -> None:
            traffic = Traffic(group.namesrv.address)

            async def command(*arguments: str) -> None:
                await trio.to_thread.run_sync(lambda: clients.run(lambda: group.twinlog(*arguments, "--yes", *signs)))

            async def healthy() -> None:
                await trio.to_thread.run_sync(lambda: clients.run(group.wait_healthy))

            async with traffic.flowing():
                await traffic.more(20)
                await command("switchover", "--candidate", second.label)
                await traffic.more(20)
                await healthy()
                second.kill()
                await command("failover", "--candidate", first.label)
                await trio.to_thread.run_sync(lambda: b.run(second.start))
                await healthy()
                await traffic.more(20)
                await command("reinit", second.label)
                await healthy()
                await traffic.more(20)
            traffic.check(await traffic.consumed())

        clients.run(lambda: trio.run(play))
        wait_for_same_commitlog(first.commit_log, second.commit_log)
        clients.run(lambda: group.twinlog("crosscheck"))
        found = json.loads(clients.run(lambda: group.twinlog("doctor", "-o", "json", status=None)).stdout)["findings"]
        about_addresses = {
            "address not reached",
            "wrong brokerIP1",
            "wrong brokerIP2",
            "HA port closed",
            "not in the record",
        }
        assert not about_addresses & {each["cause"] for each in found}

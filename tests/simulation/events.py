"""Carries out what a plan says."""

from typing import TYPE_CHECKING, Any

import trio

from tests.simulation import name_server
from tests.simulation.plan import Event
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.wire.protocol import ACK

if TYPE_CHECKING:
    from tests.simulation.world import World

STRANGER = "10.0.0.66"


def happen(world: "World", event: Event, nursery: trio.Nursery) -> None:
    """Let it happen now; what lasts ends by itself."""
    values, network = event.values, world.network
    member = world.members.get(event.target)
    ip = member.ip if member is not None else name_server.IP
    master = world.master
    match event.kind:
        case "crash" | "power cut":
            assert member is not None
            member.kill(power=event.kind == "power cut", down=values["down"])
        case "crash in call" | "power cut in call":
            assert member is not None
            member.kill_in_call(values["calls"], power=event.kind.startswith("power"), down=values["down"])
        case "power cut of all":
            for each, down in zip(world.members.values(), values["downs"], strict=True):
                each.kill(power=True, down=down)
        case "stop" | "wiped" | "master moves":
            assert member is not None
            if event.kind == "master moves":
                nursery.start_soon(_move, world)
            member.wipe = event.kind == "wiped"
            member.stop(values["down"])
        case "cut":
            other = world.members[values["to"]].ip
            there, back = network.link(ip, other), network.link(other, ip)
            links = {"both": [there, back], "there": [there], "back": [back]}[values["way"]]
            nursery.start_soon(_for_a_while, links, {"cut": True}, {"cut": False}, values["lasts"])
        case "slow link" | "tiny pieces":
            link = network.link(master.ip, ip)
            change = {"delay_max": values["delay"]} if event.kind == "slow link" else {"piece_max": values["size"]}
            before: dict[str, Any] = {name: getattr(type(link)(), name) for name in change}
            nursery.start_soon(_for_a_while, [link], change, before, values["lasts"])
        case "thin link":
            link, change = network.link(master.ip, ip), {"piece_max": values["size"], "delay_max": 0.05}
            whole = {name: getattr(type(link)(), name) for name in change}
            nursery.start_soon(_for_a_while, [link], change, whole, values["lasts"])
        case "flip":
            link = network.link(ip, master.ip) if values["back"] else network.link(master.ip, ip)
            link.change(flips=values["pieces"])
        case "reset":
            network.reset(ip, master.ip)
        case "reset of half":
            network.reset_half(ip)
        case "reset in frame":
            network.link(master.ip, ip).change(resets_after=values["bytes"])
        case "slow disk":
            assert member is not None
            member.slow_until, member.slow_delay = trio.current_time() + values["lasts"], values["delay"]
        case "sync fails":
            assert member is not None
            member.disk.fails_at = member.disk.syncs + values["syncs"]
        case "clock":
            assert member is not None
            member.wall_offset += values["seconds"]
        case "retention":
            assert member is not None
            nursery.start_soon(_delete_old, world, event)
        case "stranger":
            nursery.start_soon(_stranger, world, values["says"])
        case "name server restarts":
            world.name_server.forget()
        case "name server away":
            nursery.start_soon(_away, world, values["lasts"])
        case "burst":
            world.burst += values["count"]
        case kind:
            raise AssertionError(f"nobody knows how to {kind}")


async def _for_a_while(links: list[Any], change: dict[str, Any], back: dict[str, Any], seconds: float) -> None:
    for link in links:
        link.change(**change)
    await trio.sleep(seconds)
    for link in links:
        link.change(**back)


async def _away(world: "World", seconds: float) -> None:
    world.name_server.up = False
    await trio.sleep(seconds)
    world.name_server.up = True


async def _move(world: "World") -> None:
    """The master comes back with another port."""
    master = world.members["m"]
    while master.up:
        await trio.sleep(0.01)
    await trio.sleep(0.01)
    master.port += 1


async def _delete_old(world: "World", event: Event) -> None:
    for _ in range(event.values["files"]):
        member = world.members[event.target]
        if member.store is not None and member.up:
            member.store.retention.make_room()
        await trio.sleep(1.2)


async def _stranger(world: "World", says: str) -> None:
    """Somebody who belongs to no group, from an IP of his own, reaches the HA port."""
    master = world.members["m"]
    with trio.move_on_after(15):
        try:
            transport = await world.network.connect(STRANGER, master.address)
            for report in _words(world, says):
                await transport.send(report)
                await trio.sleep(0.05)
            buffer = bytearray(65_536)
            while size := await transport.receive_into(memoryview(buffer)):
                if says == "honest then forged":
                    await transport.send(ACK.pack(len(world.ledger.history.now) + size))
        except HAConnectionLostError:
            pass


def _words(world: "World", says: str) -> list[bytes]:
    end = len(world.ledger.history.now)
    return {
        "huge ack": [ACK.pack(0), ACK.pack(1 << 62)],
        "garbage": [world.network.rng.randbytes(37)],
        "honest then forged": [ACK.pack(0)],
        "end of log": [ACK.pack(end), ACK.pack(end + 5000)],
        "silent": [],
        "negative": [ACK.pack(-5), ACK.pack(end)],
    }[says]

"""What happens to groups whose members elect by themselves, besides what happens to all: processes that stand still, masters that
die one after the other, links that are cut while nobody sends, and people who change who begins a failover.
"""

from typing import TYPE_CHECKING

import trio

from tests.simulation import operators
from tests.simulation.plan import Event
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

KINDS = {"stands still", "flaps", "auto failover", "quiet cut"}
FOUND_SECONDS = 15.0


async def act(world: "RoleWorld", event: Event) -> None:
    """Let it happen now."""
    values = event.values
    match event.kind:
        case "stands still":
            await _stand_still(world, event.target, values["lasts"])
        case "flaps":
            await _flap(world, values["times"], values["down"], values["after"])
        case "quiet cut":
            await _cut_quietly(world, operators.meant(world, event.target), values["lasts"])
        case "auto failover":
            await operators.ask(world, world.master, "set_auto_failover", AutoFailoverRequest(mode=values["mode"]))


async def _stand_still(world: "RoleWorld", who: str, seconds: float) -> None:
    """SIGSTOP, and later SIGCONT; of all, or of all slaves: a machine whose CPU was taken away."""
    master = world.master
    members: dict[str, list[RoleMember]] = {
        "all": list(world.role_members),
        "master": [world.member(master.name)],
        "slaves": [each for each in world.role_members if each is not master],
    }
    found = members.get(who) or [operators.meant(world, who)]
    lives = [(each, each.starts) for each in found]
    for each in found:
        each.stand_still()
    await trio.sleep(seconds)
    for each, starts in lives:
        if each.starts == starts:
            each.go_on()


async def _cut_quietly(world: "RoleWorld", slave: "RoleMember", seconds: float) -> None:
    """One slave does not hear the master, and nobody sends, so that the other one, which hears it, has no more than this one."""
    world.quiet_until = trio.current_time() + seconds
    master, link = world.master, world.network.link
    links = [link(slave.ip, master.ip), link(master.ip, slave.ip)]
    for each in links:
        each.change(cut=True)
    await trio.sleep(seconds)
    for each in links:
        each.change(cut=False)


async def _flap(world: "RoleWorld", times: int, down: float, after: float) -> None:
    """Whoever is master dies, again and again."""
    for _ in range(times):
        with trio.move_on_after(FOUND_SECONDS):
            while not (world.master.up and world.member(world.master.name).writable):
                await trio.sleep(0.1)
        await trio.sleep(after)
        if not world.producing:
            return
        world.master.kill(power=False, down=down)
        await trio.sleep(0.1)

"""Operators: they change roles at any moment, and cut their own commands. What they ask for may come to nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from tests.simulation.determinism import enter
from tests.simulation.disk import Image
from tests.simulation.plan import Event
from twinlog.cluster.broker.peers.role_messages import (
    ChangeRequest,
    PauseRequest,
    ReinitRequest,
    RewindRequest,
    RoleRefusedError,
)
from twinlog.ha.errors import HAError
from twinlog.store.config import BrokerRole
from twinlog.store.errors import StoreError
from twinlog.store.member_file import decode_member
from twinlog.store.role_file import decode_role

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

KINDS = {
    "switchover", "failover", "forced failover", "command cut", "isolated", "overthrown", "master dies", "reinit", "rewind",
    "chosen alone", "pause", "old slave", "moves", "moves silently", "copied", "master copied",
    "cut off and copied", "replaced", "swapped",
}  # fmt: skip
ANY_LOSS = 1 << 40  # Bytes.
MOVED = 10  # Ports of a member are next to each other.
KNOWN_SECONDS = 8.0  # Until the group knows of a start, or is in too much trouble.
PATIENCE = 10.0  # Seconds: three rounds of questions that nobody answers, and a little.


async def act(world: "RoleWorld", event: Event) -> None:
    """Let it happen now."""
    values, member = event.values, meant(world, event.target)
    match event.kind:
        case "switchover" | "failover" | "forced failover":
            await start(world, member, event.kind)
        case "command cut":
            await _cut_command(world, member, values)
        case "isolated":
            await _isolate(world, values)
        case "overthrown":
            await _overthrow(world, member, values)
        case "chosen alone":
            await _choose_alone(world, member, values)
        case "master dies":
            world.master.kill(power=values["power"], down=values["down"])
        case "moves":
            await _move(member, values)
        case "moves silently":
            await _move_silently(world, member, values)
        case "copied" | "master copied" | "cut off and copied" | "replaced" | "swapped":
            if not world.copying:
                world.copying = True
                await _COPIES[event.kind](world, member, values)
                world.copying = False
        case "old slave":
            member.is_old = True
            await trio.sleep(values["lasts"])
            member.is_old = False
            member.stop(0.05)  # Another version is started in its place.
        case "reinit":
            await ask(world, member, "reinit", ReinitRequest())
        case "rewind":
            await ask(world, member, "rewind", RewindRequest())
        case "pause":
            await ask(
                world, world.master, "pause", PauseRequest(for_ms=int(values["lasts"] * 1000), reason="an operator")
            )


async def _move(member: Any, values: dict[str, Any]) -> None:
    """It comes back with other ports."""
    if values["stop"]:
        member.stop(values["down"])
    else:
        member.kill(power=values["power"], down=values["down"])
    while member.up:
        await trio.sleep(0.01)
    member.port += MOVED


async def _move_silently(world: "RoleWorld", member: "RoleMember", values: dict[str, Any]) -> None:
    """The same, while another slave is away: its connection is left standing at the master, with all that it acknowledged."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut, _links_to_others(world, member), values["down"] + 3.0)
        await trio.sleep(0.3)
        world.network.reset_half(member.ip)
        await _move(member, {"stop": False, "power": False, "down": values["down"]})


def _links_to_others(world: "RoleWorld", member: "RoleMember") -> list[Any]:
    """Those of the master to all but this slave."""
    master, link = world.master, world.network.link
    others = [each for each in world.role_members if each not in (member, master)]
    return [each for other in others for each in (link(other.ip, master.ip), link(master.ip, other.ip))]


def _image(world: "RoleWorld", member: "RoleMember", *, of_master: bool = False) -> Image | None:
    """A copy of a slave's disk, or a master's; None: it is none now, or no member of a record yet."""
    state = member.durable_role()
    if state is None or state.group is None or (state.role is not BrokerRole.SLAVE) is not of_master:
        return None
    is_there = member.identity in state.group.voters and member.up and world.producing
    return member.disk.image() if is_there else None


async def _copy(world: "RoleWorld", member: "RoleMember", values: dict[str, Any]) -> None:
    """Its disk is copied, it goes on, and is seen; then somebody starts the copy. A copy that nothing tells from the member that
    moved would be that: what it lacks is for _replace().
    """
    image = _image(world, member, of_master=member is world.master)
    if image is None:
        return
    if values["stop"]:
        member.stop(0.1)
    else:
        member.kill(power=False, down=0.1)
    if not await _is_known(world, member, image):
        world.trace(f"{member.name} is not seen again: nobody starts the copy")
        return
    if values["runs"] != "elsewhere, beside it":
        member.kill(power=False, down=values["lasts"] + 1.0)
        while member.up:
            await trio.sleep(0.01)
    if world.producing:
        elsewhere = values["runs"] != "in its place"
        world.trace(f"a copy of {member.name} is started {values['runs']}")
        await world.run_copy(member, image, elsewhere=elsewhere, seconds=values["lasts"])


async def _copy_master(world: "RoleWorld", _member: "RoleMember", values: dict[str, Any]) -> None:
    """The same of whoever is master: the copy takes itself for the master that it was."""
    await _copy(world, world.member(world.master.name), values)


async def _copy_cut_off(world: "RoleWorld", member: "RoleMember", values: dict[str, Any]) -> None:
    """The master reaches none of its slaves, but a copy of one, which it takes for the slave that moved. It elects the other
    slave, with all that was acknowledged.
    """
    image, master = _image(world, member), world.member(world.master.name)
    if image is None or not master.writable:
        return
    (other,) = [each for each in world.role_members if each not in (member, master)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            _cut_until, world, links_of(world, master, "both"), lambda: other.writable or member.writable
        )
        world.trace(f"a copy of {member.name} is started, which is cut off")
        nursery.start_soon(lambda: world.run_copy(member, image, elsewhere=True, seconds=values["lasts"], follows=True))
        await trio.sleep(values["lasts"] + 0.1)
        while world.producing and not other.writable and not member.writable:
            await start(world, other, "failover")
            await trio.sleep(3)


async def _cut_until(world: "RoleWorld", links: list[Any], condition: Callable[[], bool]) -> None:
    """Cut these until then, whatever others do with them: whoever was displaced by a copy has another master."""
    while world.producing and not condition():
        for link in links:
            link.change(cut=True)
        await trio.sleep(0.05)
    for link in links:
        link.change(cut=False)


async def _is_known(world: "RoleWorld", member: "RoleMember", image: Image) -> bool:
    """Wait until all have, on their disks, a register code of the member that is not in the copy."""
    old = decode_member(image.files["/twinlog/member"][0]).register_codes
    with trio.move_on_after(KNOWN_SECONDS):
        while world.producing:
            await trio.sleep(0.1)
            states = [each.durable_role() for each in world.role_members]
            groups = [state.group for state in states if state is not None and state.group is not None]
            known = [group.member(member.identity) for group in groups]
            codes = [each.code for each in known if each is not None]
            if member.up and len(codes) == len(states) and not set(codes) & {"", *old}:
                return world.producing
    return False


async def _replace(world: "RoleWorld", member: "RoleMember", values: dict[str, Any]) -> None:
    """Its machine is gone, and a copy of its disk, of some seconds before, goes on as this member, at another address. Nobody can
    tell it from a member that moved. Half of the times it is asked to become master at once, of what it has.
    """
    is_alone = member.config.need == 3
    async with trio.open_nursery() as nursery:
        if values["asked"] and not is_alone:  # Then only the master and this slave have what comes now.
            nursery.start_soon(_cut, _links_to_others(world, member), values["ago"] + values["down"] + 1.0)
            await trio.sleep(0.2)
        image, starts = _image(world, member), member.starts
        await trio.sleep(values["ago"])
        if image is None or not await _is_replaced(world, member, image, starts, values["down"]):
            return
        if values["asked"]:
            after = {"verb": "failover", "lasts": values["lasts"], "calls": 0, "power": False}
            choose = _choose_alone if is_alone else _overthrow
            nursery.start_soon(choose, world, member, {**after, "after": values["down"] + 0.5})


async def _is_replaced(world: "RoleWorld", member: "RoleMember", image: Image, starts: int, down: float) -> bool:
    """Replace its disk, unless it promised or started since: a copy that lacks a promise is nobody's, and nobody can know."""
    now, then = member.durable_role(), decode_role(image.files["/twinlog/role"][0])
    if now is None or now.promised != then.promised or member.starts != starts or not member.up or not world.producing:
        return False
    member.kill(power=False, down=down)
    member.older = image
    world.trace(f"a copy of {member.name} goes on in its place")
    while member.up:
        await trio.sleep(0.01)
    member.port += MOVED
    return True


async def _swap(world: "RoleWorld", _member: "RoleMember", values: dict[str, Any]) -> None:
    """Two slaves come back, each with the other one's address."""
    one, other = [each for each in world.role_members if each is not world.master]
    for each in (one, other):
        if values["stop"]:
            each.stop(values["down"])
        else:
            each.kill(power=False, down=values["down"])
    with trio.move_on_after(values["down"] / 2):
        while one.store is not None or other.store is not None:
            await trio.sleep(0.01)
        one.ip, one.port, other.ip, other.port = other.ip, other.port, one.ip, one.port
        world.trace(f"{one.name} has {one.address}, and {other.name} {other.address}")


_COPIES = {
    "copied": _copy,
    "master copied": _copy_master,
    "cut off and copied": _copy_cut_off,
    "replaced": _replace,
    "swapped": _swap,
}


def meant(world: "RoleWorld", target: str) -> Any:
    """The member with this name, or the first or second that is not master now."""
    word, _, number = target.partition(" ")
    others = [member for member in world.role_members if member is not world.master]
    return others[int(number) - 1] if word == "slave" else world.members.get(target)


async def start(world: "RoleWorld", member: Any, kind: str) -> None:
    """Ask a candidate to become master."""
    await ask(world, member, "start", change_ask(member, kind))


def change_ask(member: "RoleMember", kind: str) -> ChangeRequest:
    """What an operator asks a candidate for, in a word."""
    verb, _, _ = kind.rpartition("forced ")[2].partition(" ")
    accepts = "unknown" if kind.startswith("forced") else None
    return ChangeRequest(verb=verb, candidate=member.broker_address, reason=kind, accept_data_loss=accepts)  # type: ignore[arg-type]


async def repair(world: "RoleWorld", member: "RoleMember", verb: str) -> None:
    """Let a member give up what its master lacks, or begin anew."""
    await ask(world, member, verb, RewindRequest(accept_data_loss=ANY_LOSS) if verb == "rewind" else ReinitRequest())


async def take_over(world: "RoleWorld", member: "RoleMember", master: "RoleMember") -> None:
    """Stop a master that lost messages, and make the slave that has them the next one."""
    master.stop(PATIENCE)
    while master.up:
        await trio.sleep(0.1)
    await start(world, member, "forced failover")


async def ask(world: "RoleWorld", member: Any, verb: str, what: object) -> None:
    """On its own machine, as its admin does it; nobody waits for the answer."""
    if member.calls_nursery is None or not member.up:
        world.trace(f"{member.name} does not hear the operator")
        return
    member.calls_nursery.start_soon(_call, world, member, verb, what)
    await trio.lowlevel.checkpoint()


async def _call(world: "RoleWorld", member: "RoleMember", verb: str, what: Any) -> None:
    await enter(member)
    try:
        await getattr(member.service, verb)(what)
    except (RoleRefusedError, HAError, StoreError, TimeoutError) as error:
        world.trace(f"{member.name} refuses to {verb}: {error!s:.150}")


async def _cut_command(world: "RoleWorld", member: Any, values: dict[str, Any]) -> None:
    """A role change, and in the middle of it one of those who take part goes, or the way between them."""
    master = world.master
    others = [each for each in world.role_members if each not in (member, master)]
    victim = {"candidate": member, "master": master, "other": (others or [member])[0], "link": master}[values["cut"]]
    await start(world, member, values["verb"])
    if "calls" in values:
        victim.kill_in_call(values["calls"], power=values["power"], down=values["lasts"])
        return
    await trio.sleep(values["after"])
    if values["cut"] == "link":
        links = [world.network.link(member.ip, master.ip), world.network.link(master.ip, member.ip)]
        await _cut(links, values["lasts"])
    else:
        victim.kill(power=values["power"], down=values["lasts"])


async def _isolate(world: "RoleWorld", values: dict[str, Any]) -> None:
    """The master of the moment reaches no other member, or is reached by none."""
    await _cut(links_of(world, world.master, values["way"]), values["lasts"])


async def _overthrow(world: "RoleWorld", candidate: Any, values: dict[str, Any]) -> None:
    """The master is out of reach, another one is chosen, and then it comes back."""
    old = world.master
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut, links_of(world, old, "both"), values["after"] + values["lasts"])
        await trio.sleep(values["after"])
        await start(world, candidate, "failover")
    if values["calls"]:
        old.kill_in_call(values["calls"], power=values["power"], down=1.0)


async def _choose_alone(world: "RoleWorld", candidate: Any, values: dict[str, Any]) -> None:
    """Somebody who reaches nobody is to be master, with what he has."""
    async with trio.open_nursery() as nursery:
        seconds = values["after"] + PATIENCE + values["lasts"]
        nursery.start_soon(_cut, links_of(world, candidate, "both"), seconds)
        await trio.sleep(values["after"])
        await start(world, candidate, values["verb"])


def links_of(world: "RoleWorld", master: Any, way: str) -> list[Any]:
    links = []
    for other in world.members.values():
        if other is not master:
            there, back = world.network.link(master.ip, other.ip), world.network.link(other.ip, master.ip)
            links += {"both": [there, back], "there": [there], "back": [back]}[way]
    return links


async def _cut(links: list[Any], seconds: float) -> None:
    for link in links:
        link.change(cut=True)
    await trio.sleep(seconds)
    for link in links:
        link.change(cut=False)

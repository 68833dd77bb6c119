"""A process that stands still does nothing, and finds what came meanwhile when it goes on."""

import math

import trio
from attrs import define, field

from tests.simulation import determinism


@define(eq=False)
class FakeMachine:
    wall_offset: float = 0.0
    held: list | None = None
    did: list[tuple[str, float]] = field(factory=list)

    async def run_in_thread(self, function, *, abandon_on_cancel):
        return function()


async def sleeper(machine: FakeMachine) -> None:
    await determinism.enter(machine)
    while True:
        await trio.sleep(1)
        machine.did.append(("slept", trio.current_time()))


async def reader(machine: FakeMachine, channel: trio.MemoryReceiveChannel) -> None:
    await determinism.enter(machine)
    while True:
        with trio.move_on_after(3) as scope:
            machine.did.append((await channel.receive(), trio.current_time()))
        if scope.cancelled_caught:
            machine.did.append(("nothing came", trio.current_time()))


def test_a_process_that_stands_still_does_nothing_until_it_goes_on():
    machine = FakeMachine()

    async def main() -> None:
        send, receive = trio.open_memory_channel(math.inf)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, machine)
            nursery.start_soon(reader, machine, receive)
            await trio.sleep(1.5)
            machine.held = []
            await send.send("news")  # Before its time is over.
            await trio.sleep(8)
            assert machine.did == [("slept", 1.0)]
            held, machine.held = machine.held, None
            for each in held:
                each()
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    determinism.run(main, 1)
    assert sorted(machine.did[1:]) == [("news", 9.5), ("slept", 9.5)]


def test_what_begins_on_it_meanwhile_waits_too():
    machine = FakeMachine(held=[])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, machine)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()  # Its process ends: what is held has to go on to end.
            held, machine.held = machine.held, None
            for each in held or ():
                each()

    determinism.run(main, 1)
    assert not machine.did

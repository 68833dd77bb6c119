"""Rounds of kill -9 of the master in traffic, failover to another member, return and rewind of the dead one.

After each round messages are acknowledged again; after all of them every message that was acknowledged is there, at its place,
once, and the logs of all members are the same bytes.
"""

import random
import time
from pathlib import Path
from typing import Any

import trio

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread, running

PRODUCERS, MEMBERS = 4, 3


async def run_rounds(directory: Path, rounds: int, seed: int) -> dict[str, Any]:
    """Carry them out; raises AssertionError when something is lost. What each round took, in seconds, is in the answer."""
    rng = random.Random(seed)
    with running(directory, MEMBERS) as group:
        traffic = Traffic(group.namesrv.address)
        told = []
        async with traffic.flowing(PRODUCERS):
            master = group.members[0]
            for number in range(rounds):
                master, what = await _round(number, group, master, traffic, rng)
                told.append(what)
        await in_thread(group.wait_healthy)
        traffic.check(await traffic.consumed())
        first, *others = group.members
        for member in others:
            await in_thread(wait_for_same_commitlog, first.commit_log, member.commit_log)
        return {
            "seed": seed,
            "acknowledged": len(traffic.acknowledged),
            "sent": len(traffic.sent),
            "other_answers": traffic.others,
            "lost": 0,
            "rounds": told,
        }


async def _round(
    number: int, group: Group, victim: RoleBroker, traffic: Traffic, rng: random.Random
) -> tuple[RoleBroker, dict[str, Any]]:
    """The victim is the master. Returns the next one, and what happened."""
    await traffic.more(rng.randrange(20, 200))
    candidate = rng.choice([member for member in group.members if member is not victim])
    victim.kill()
    killed = time.monotonic()
    await trio.sleep(rng.choice([0.1, 0.5]))  # Answers that were on their way have arrived.
    asked = time.monotonic()
    first_ack: list[float] = []

    async def return_after_an_acknowledgement() -> None:
        first_ack.append(await traffic.more(1))
        await in_thread(victim.start)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(return_after_an_acknowledgement)
        chosen = await _fail_over(group, candidate, number)
        done = time.monotonic()
    returned = time.monotonic()
    rewound = await in_thread(group.twinlog, "rewind", victim.label, "--yes")
    return chosen, {
        "round": number,
        "killed": victim.label,
        "chosen": chosen.label,
        "command_seconds": round(done - asked, 3),
        "kill_to_first_ack_seconds": round(first_ack[0] - killed, 3),
        "rewind_seconds": round(time.monotonic() - returned, 3),
        "rewind": rewound.stdout.strip().splitlines()[0],
    }


async def _fail_over(group: Group, candidate: RoleBroker, number: int) -> RoleBroker:
    """To the candidate or, where another member holds more, to that one: a refusal names it."""
    others = [candidate, *(member for member in group.members if member is not candidate and member.running)]
    told = []
    for member in others:
        command = ("failover", "--candidate", member.label, "--yes", "--reason", f"round {number}")
        done = await in_thread(group.twinlog, *command, status=None)
        if done.returncode in (0, 6):
            return member
        told.append(done.stderr)
    raise AssertionError("\n".join([*told, group.tails()]))

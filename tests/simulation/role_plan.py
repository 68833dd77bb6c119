"""What a seed with changing roles stands for, besides what every seed has: operators, and what cuts their commands. Pure."""

import random

from attrs import evolve

from tests.simulation.plan import MEMBERS, Config, Event, Plan, draw_trouble

SHARE = 0.7  # Of the seeds that can have it: of all of them 60 %.
# Left out. A flipped bit that no checksum covers makes a log of nobody's; an address is a member's identity for ever; whom a
# master admits is what other seeds are about; and after a sync that failed nobody knows what a disk has, not even the ledger.
_WITHOUT = {"flip", "stranger", "master moves", "sync fails"}
_KINDS = {
    "switchover": 10,
    "failover": 8,
    "forced failover": 4,
    "command cut": 10,
    "isolated": 4,
    "overthrown": 10,
    "chosen alone": 6,
    "master dies": 8,
    "reinit": 2,
    "rewind": 1,
    "pause": 1,
}


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    return with_roles(draw_trouble(seed))


def with_roles(plan: Plan) -> Plan:
    """The same with operators, for most seeds; the others stay as they are."""
    rng = random.Random(f"roles {plan.seed}")
    if plan.config.same_ip or rng.random() >= SHARE:
        return plan
    config = evolve(plan.config, roles=True)
    old = [event for event in plan.events if event.kind not in _WITHOUT and not _wipes_first(event)]
    kinds = ["switchover", "overthrown", *rng.sample(sorted(_KINDS), rng.randint(2, 5))]
    times = [rng.uniform(4.0, config.seconds) for _ in range(rng.randint(4, 14))]
    new = [_event(rng, round(at, 3), rng.choices(kinds, [_KINDS[kind] for kind in kinds])[0], config) for at in times]
    events = sorted([*old[: rng.randint(0, 10)], *new], key=lambda event: event.at)
    return evolve(plan, config=config, events=tuple(events))


def _wipes_first(event: Event) -> bool:
    """Whoever is configured as the master and has forgotten all is a master of another group."""
    return event.kind == "wiped" and event.target == MEMBERS[0]


def _event(rng: random.Random, at: float, kind: str, config: Config) -> Event:
    # Mostly one of those who are not master then, whoever that is.
    who = rng.choice(MEMBERS) if rng.random() < 0.2 else rng.choice(("slave 1", "slave 2"))
    lasts = round(rng.choice((rng.uniform(0.2, 4), rng.uniform(4, 20))), 3)
    soon = round(rng.choice((rng.uniform(0, 0.1), rng.uniform(0, 3))), 4)
    match kind:
        case "switchover" | "failover" | "forced failover" | "rewind" | "reinit":
            return Event(at, kind, who)
        case "command cut":
            verb = rng.choice(("switchover", "switchover", "failover", "forced failover"))
            cut = rng.choice(("candidate", "candidate", "master", "other", "link"))
            values = {"verb": verb, "cut": cut, "lasts": lasts, "power": rng.random() < 0.3}
            # At a moment, or at one of the next calls to its disk: roles are changed in few calls.
            if cut != "link" and rng.random() < 0.6:
                return Event(at, kind, who, {**values, "calls": rng.randint(1, 24)})
            return Event(at, kind, who, {**values, "after": soon})
        case "chosen alone":
            verb = rng.choice(("failover", "failover", "forced failover"))
            return Event(at, kind, who, {"verb": verb, "after": round(rng.uniform(0, 4), 3), "lasts": lasts})
        case "isolated":
            return Event(at, kind, "", {"lasts": lasts, "way": rng.choice(("both", "both", "there", "back"))})
        case "overthrown":
            # The old master goes on alone, and is cut down to size when it comes back: then, too, it may die.
            values = {
                "lasts": lasts,
                "after": soon,
                "calls": rng.choice((0, rng.randint(1, 60))),
                "power": rng.random() < 0.7,
            }
            return Event(at, kind, who, values)
        case "master dies":
            return Event(at, kind, "", {"power": rng.random() < 0.3, "down": lasts})
        case "pause":
            return Event(at, kind, "", {"lasts": lasts})
        case _:
            raise AssertionError(kind)

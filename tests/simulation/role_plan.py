"""What a seed with changing roles stands for, besides what every seed has: operators, and what cuts their commands. Pure."""

import random

from attrs import evolve

from tests.simulation.etcd_plan import of_pair, with_etcd
from tests.simulation.plan import MEMBERS, Config, Event, Plan, draw_trouble

BEGIN_SHARE = 0.2  # Of these, how many have others than members that acknowledge at first.
FIRST_RECORD_SECONDS = 16.0  # By then there is one.
SHARE = 0.42
UNATTENDED_SHARE = 0.35  # Of the others, in how many nobody types anything, and members elect by themselves.
PAIR_SHARE = 0.25  # Of these, in how many there are two members, and a name server as their witness.
MOVE_SHARE = 0.4  # Of these, in how many members come back with another address.
SILENT_SHARE = 0.3  # And in how many of those in which all are needed one moves without a word.
COPY_SHARE = 0.4  # And in how many disks are copied, or addresses swapped.
MASTER_COPY_SHARE = 0.2  # And in how many that of a master is.
CUT_OFF_SHARE = 0.3  # And in how many of those in which two hold a message that of a slave that is cut off.
RUNS = ("elsewhere, beside it", "elsewhere, without it", "in its place")  # Processes on copies.
# Left out. A flipped bit that no checksum covers makes a log of nobody's; members move by events of their own; whom a
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
_TROUBLE = {
    "master dies": 10,
    "isolated": 6,
    "cut": 6,
    "quiet cut": 6,
    "stands still": 8,
    "clock": 3,
    "flaps": 2,
    "name server away": 3,
}


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    return with_etcd(with_roles(draw_trouble(seed)))


def with_roles(plan: Plan) -> Plan:
    """The same with operators, or with a group that is left alone; the others stay as they are."""
    rng = random.Random(f"roles {plan.seed}")
    if plan.config.same_ip:
        return plan
    if rng.random() >= SHARE:
        return _unattended(plan)
    config, switches = _mode(plan.seed, evolve(plan.config, roles=True, operators=True))
    old = [event for event in plan.events if event.kind not in _WITHOUT and not _wipes_first(event)]
    kinds = ["switchover", "overthrown", *rng.sample(sorted(_KINDS), rng.randint(2, 5))]
    times = [rng.uniform(4.0, config.seconds) for _ in range(rng.randint(4, 14))]
    new = [_event(rng, round(at, 3), rng.choices(kinds, [_KINDS[kind] for kind in kinds])[0], config) for at in times]
    beginning = _beginning(plan.seed, config)
    old = [event for event in old[: rng.randint(0, 10)] if not (beginning and _loses_first(event))]
    moved = [*_moves(plan.seed, config, old), *_silent_moves(plan.seed, config, [*old, *beginning])]
    copied = [
        event for draw in (_copies, _master_copies, _cut_off) for event in draw(plan.seed, config, [*old, *beginning])
    ]
    events = sorted([*old, *new, *beginning, *moved, *copied, *switches], key=lambda event: event.at)
    return evolve(plan, config=config, events=tuple(events))


def _mode(seed: int, config: Config) -> tuple[Config, list[Event]]:
    """Who begins a failover beside the operators, and when that is changed."""
    rng = random.Random(f"mode {seed}")
    config = evolve(config, auto=rng.choice(("members", "members", "off")), max_loss=_max_loss(rng, config))
    times = [rng.uniform(5.0, config.seconds) for _ in range(rng.choice((0, 0, 0, 1, 2, 3)))]
    return config, [Event(round(at, 3), "auto failover", "", {"mode": rng.choice(("off", "members"))}) for at in times]


def _max_loss(rng: random.Random, config: Config) -> int:
    return rng.choice((0, 0, 2000, 1_000_000)) if not config.synchronous else rng.choice((0, 0, 0, 1_000_000))


def _unattended(plan: Plan) -> Plan:
    """The same with a group that is left alone, for some seeds."""
    rng = random.Random(f"unattended {plan.seed}")
    if rng.random() >= UNATTENDED_SHARE:
        return plan
    config = evolve(plan.config, roles=True, auto="members", max_loss=_max_loss(rng, plan.config))
    old = [event for event in plan.events if event.kind not in _WITHOUT and not _wipes_first(event)]
    kinds = rng.sample(sorted(_TROUBLE), rng.randint(2, 4))
    times = [rng.uniform(7.0, config.seconds) for _ in range(rng.randint(2, 6))]
    new = [_trouble(rng, round(at, 3), rng.choices(kinds, [_TROUBLE[kind] for kind in kinds])[0]) for at in times]
    events = sorted([*old[: rng.randint(0, 8)], *new], key=lambda event: event.at)
    if config.synchronous and rng.random() < PAIR_SHARE:
        config, events = evolve(config, need=2, need_min=1, pair=True), list(map(of_pair, events))
    return evolve(plan, config=config, events=tuple(events))


def _trouble(rng: random.Random, at: float, kind: str) -> Event:
    down = round(rng.choice((rng.uniform(0.1, 0.6), rng.uniform(1, 8), rng.uniform(8, 30))), 3)
    lasts = round(rng.choice((rng.uniform(1, 5), rng.uniform(5, 30))), 3)
    match kind:
        case "master dies":
            return Event(at, kind, "", {"power": rng.random() < 0.3, "down": down})
        case "isolated":
            return Event(at, kind, "", {"lasts": lasts, "way": rng.choice(("both", "both", "there", "back"))})
        case "cut":
            values = {
                "to": rng.choice(MEMBERS[1:]),
                "way": rng.choice(("both", "both", "there", "back")),
                "lasts": lasts,
            }
            return Event(at, kind, rng.choice(("m", "m", "n")), values)
        case "stands still":
            who = rng.choice(("master", "master", "slave 1", "slaves", "all"))
            return Event(at, kind, who, {"lasts": round(rng.uniform(5, 30), 3)})
        case "clock":
            return Event(at, kind, rng.choice(MEMBERS), {"seconds": rng.choice((-3600, 3600))})
        case "quiet cut":
            return Event(at, kind, rng.choice(("slave 1", "slave 2")), {"lasts": round(rng.uniform(6, 20), 3)})
        case "flaps":
            values = {
                "times": rng.randint(3, 7),
                "down": round(rng.uniform(1, 3), 3),
                "after": round(rng.uniform(0, 3), 3),
            }
            return Event(at, kind, "", values)
        case _:
            return Event(at, kind, "", {"lasts": lasts})


def _beginning(seed: int, config: Config) -> list[Event]:
    """In some seeds one slave knows of no records, and the other one lags, when the first record is written."""
    rng = random.Random(f"beginning {seed}")
    if not config.synchronous or rng.random() >= BEGIN_SHARE:
        return []
    upgraded = round(rng.uniform(6, 10), 3)  # From then on there can be a record: of the master and of s1, which lags.
    later, lags = round(upgraded + rng.uniform(2, 15), 3), round(upgraded + rng.uniform(1, 8), 3)
    events = [
        Event(0.0, "old slave", "s1", {"lasts": upgraded}),
        Event(0.0, "old slave", "s2", {"lasts": later}),
        Event(0.0, "thin link", "s1", {"size": rng.randint(30, 250), "lasts": lags}),
        Event(round(rng.uniform(5.2, upgraded), 3), "burst", "", {"count": rng.randint(5, 25)}),
    ]
    for _ in range(rng.randint(0, 2)):
        after = {
            "lasts": round(rng.uniform(1, 8), 3),
            "after": round(rng.uniform(0, 0.2), 3),
            "calls": 0,
            "power": False,
        }
        events.append(Event(round(upgraded + rng.uniform(0.1, 3), 3), "overthrown", "s1", after))
    return events


def _moves(seed: int, config: Config, old: list[Event]) -> list[Event]:
    """In some seeds members come back with another address, in the middle of whatever happens. A directory that is wiped and
    moved is nobody's: no record names it.
    """
    rng = random.Random(f"moves {seed}")
    if rng.random() >= MOVE_SHARE or any(event.kind == "wiped" for event in old):
        return []
    return [
        Event(
            round(rng.uniform(4.0, config.seconds), 3),
            "moves",
            rng.choice((*MEMBERS, "slave 1", "slave 2")),
            {"stop": rng.random() < 0.5, "power": rng.random() < 0.3, "down": round(rng.uniform(0.1, 6), 3)},
        )
        for _ in range(rng.randint(1, 4))
    ]


def _silent_moves(seed: int, config: Config, others: list[Event]) -> list[Event]:
    """In some seeds in which both slaves are needed one of them moves while the other one is away, and its master is not told."""
    rng = random.Random(f"silent moves {seed}")
    is_fit = config.synchronous and config.need == len(MEMBERS)
    if not is_fit or rng.random() >= SILENT_SHARE or any(event.kind in ("wiped", "old slave") for event in others):
        return []
    at, who = round(rng.uniform(8.0, config.seconds), 3), rng.choice(("slave 1", "slave 2"))
    return [Event(at, "moves silently", who, {"down": round(rng.uniform(0.1, 1.5), 3)})]


def _copies(seed: int, config: Config, others: list[Event]) -> list[Event]:
    """In some seeds slaves' disks are copied: one more process runs on the copy, elsewhere or at the member's own address, or it
    goes on in place of a member that died. Or two slaves swap their addresses.
    """
    rng = random.Random(f"copies {seed}")
    if rng.random() >= COPY_SHARE or any(event.kind in ("wiped", "old slave") for event in others):
        return []
    return [_copy(rng, round(rng.uniform(5.0, config.seconds), 3)) for _ in range(rng.randint(1, 3))]


def _master_copies(seed: int, config: Config, others: list[Event]) -> list[Event]:
    """In some seeds a master's disk is copied, and a process on the copy starts as the former master that it was."""
    rng = random.Random(f"copies of masters {seed}")
    if rng.random() >= MASTER_COPY_SHARE or any(event.kind in ("wiped", "old slave") for event in others):
        return []
    return [
        Event(
            round(rng.uniform(5.0, config.seconds), 3),
            "master copied",
            "",
            {"runs": rng.choice(RUNS), "stop": rng.random() < 0.5, "lasts": round(rng.uniform(4, 14), 3)},
        )
        for _ in range(rng.randint(1, 2))
    ]


def _cut_off(seed: int, config: Config, others: list[Event]) -> list[Event]:
    """In some seeds the slaves are cut off from their master, which meets a copy of one of them instead."""
    rng = random.Random(f"cut off {seed}")
    is_fit = config.synchronous and config.need == 2
    if not is_fit or rng.random() >= CUT_OFF_SHARE or any(event.kind in ("wiped", "old slave") for event in others):
        return []
    at, who = round(rng.uniform(5.0, config.seconds), 3), rng.choice(("slave 1", "slave 2"))
    return [Event(at, "cut off and copied", who, {"lasts": round(rng.uniform(4, 12), 3)})]


def _copy(rng: random.Random, at: float) -> Event:
    kind, who = rng.choice(("copied", "copied", "replaced", "swapped")), rng.choice(("slave 1", "slave 2"))
    down = round(rng.uniform(0.2, 3), 3)
    match kind:
        case "copied":
            where = rng.choice(RUNS)
            return Event(
                at, kind, who, {"runs": where, "stop": rng.random() < 0.5, "lasts": round(rng.uniform(1, 9), 3)}
            )
        case "replaced":
            values = {"ago": round(rng.uniform(0.3, 3), 3), "asked": rng.random() < 0.6}
            return Event(at, kind, who, {**values, "down": down, "lasts": round(rng.uniform(3, 9), 3)})
        case _:
            return Event(at, kind, "", {"stop": rng.random() < 0.5, "down": down})


def _loses_first(event: Event) -> bool:
    """A master that loses bytes before there is a record: no history tells what its slaves hold from what it writes then."""
    return event.kind.startswith("power cut") and event.target in (MEMBERS[0], "") and event.at < FIRST_RECORD_SECONDS


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

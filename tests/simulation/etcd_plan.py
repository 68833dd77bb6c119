"""What a seed stands for whose group hands its record to etcd, besides what every group that elects by itself has. Pure."""

import random

from attrs import evolve

from tests.simulation.plan import Config, Event, Plan

SHARE = 0.5  # Of the synchronous groups that elect by themselves.
PAIR_SHARE = 0.4  # Of those of three that nobody attends, in how many there are two members then.
AFTER_COPY_SECONDS = 8.0  # For the others to elect.
COMES_BACK_SHARE = 0.4
LEAVES_SHARE = 0.2
ALONE_SHARE = 0.3
LONG_SHARE = 0.15  # In how many etcd is away for a minute or so.
_KINDS = {
    "etcd away": 6,
    "etcd slow": 3,
    "etcd restarts": 4,
    "etcd loses": 8,
    "etcd cut": 8,
    "member dies": 12,
    "the last dies": 6,
}

_OF_ETCD = {kind for kind in _KINDS if kind.startswith("etcd")} | {"auto failover"}


def is_fit(plan: Plan) -> bool:
    """Whether its group may hand its record to etcd."""
    config = plan.config
    return config.roles and config.synchronous and config.auto == "members"


def with_etcd(plan: Plan) -> Plan:
    """The same with etcd, for some seeds; the others stay as they are."""
    rng = random.Random(f"record in etcd {plan.seed}")
    if not is_fit(plan) or rng.random() >= SHARE:
        return plan
    begins = rng.random() < 0.5
    config = evolve(
        plan.config,
        etcd=True,
        auto="etcd" if begins else "members",
        sync_flush=rng.random() < 0.65,
        need_min=rng.choice((1, 1, 1, 1, 2)),
        leave_seconds=rng.choice((2.0, 4.0, 4.0, 8.0)),
    )
    events = [event for event in plan.events if event.kind != "auto failover"]
    if not config.operators and not config.pair and rng.random() < PAIR_SHARE:
        config, events = evolve(config, need=2, pair=True), list(map(of_pair, events))
    if config.pair:
        config = evolve(config, need_min=1)
        events = [event for event in events if event.kind != "wiped"]  # It may have been the last copy.
    is_long = rng.random() < LONG_SHARE
    if is_long:
        config = evolve(config, seconds=config.seconds + 40)
    new = [*_switches(rng, config, begins=begins), *_trouble(rng, config, is_long=is_long)]
    new += [*_comes_back(plan.seed, config), *_alone(plan.seed, config), *_leaves(plan.seed, config)]
    events = _quiet(_apart([*events, *new]))
    return evolve(plan, config=config, events=tuple(sorted(events, key=lambda event: event.at)))


def _comes_back(seed: int, config: Config) -> list[Event]:
    """In some seeds in which one more member has to hold a message once a slave is in the set again: trouble with that."""
    rng = random.Random(f"comes back {seed}")
    if not (config.pair or config.need == 3) or not config.sync_flush or rng.random() >= COMES_BACK_SHARE:
        return []
    unheard = rng.random() < 0.5
    values = {"unheard": unheard, "delay": 0.002 if unheard else round(rng.uniform(0.1, 0.8), 3)}
    at, down = round(rng.uniform(10, config.seconds - 8), 3), round(rng.uniform(3, 8), 3)
    return [Event(at, "comes back", "", {**values, "down": down})]


def _leaves(seed: int, config: Config) -> list[Event]:
    """In some seeds in which fewer have to hold a message once a slave is gone, etcd does not hear of that for a while."""
    rng = random.Random(f"leaves {seed}")
    is_fit = (config.pair or config.need == 3) and config.sync_flush and config.need_min == 1
    return [Event(round(rng.uniform(9, 14), 3), "leaves")] if is_fit and rng.random() < LEAVES_SHARE else []


def _alone(seed: int, config: Config) -> list[Event]:
    """In some seeds with operators a member goes on alone without the flush that the set would demand for that."""
    rng = random.Random(f"alone by force {seed}")
    is_fit = config.operators and not config.sync_flush and config.auto == "etcd"
    if not is_fit or rng.random() >= ALONE_SHARE:
        return []
    return [
        Event(
            round(rng.uniform(10, config.seconds - 8), 3), "alone by force", "", {"after": round(rng.uniform(1, 3), 3)}
        )
    ]


def _quiet(events: list[Event]) -> list[Event]:
    """Nothing else happens while a member goes on alone by force, and soon before."""
    spans = [(each.at - 4, each.at + 16) for each in events if each.kind == "alone by force"]
    return [each for each in events if each.kind == "alone by force" or not any(a < each.at < b for a, b in spans)]


def _apart(events: list[Event]) -> list[Event]:
    """Nothing else happens to members while one is cut off and a copy of it runs: of a dead member nobody could tell the copy.
    Nor is its master's word in etcd, which would decide who of them is the member.
    """
    alone = [each for each in events if each.kind == "cut off and copied"]
    if not alone:
        return events
    spans = [(each.at - 2.0, each.at + each.values["lasts"] + AFTER_COPY_SECONDS) for each in alone]
    cuts = [
        Event(begin + 1.9, "etcd cut", "master", {"way": "both", "lasts": round(end - begin, 3)})
        for begin, end in spans
    ]
    others = [each for each in events if each not in alone and each.kind != "etcd cut"]
    kept = [each for each in others if each.kind in _OF_ETCD or not any(a < each.at < b for a, b in spans)]
    return [*alone, *cuts, *kept]


def _switches(rng: random.Random, config: Config, *, begins: bool) -> list[Event]:
    """Into etcd, back to the members, and again."""
    times = [rng.uniform(12.0, config.seconds) for _ in range(rng.choice((0, 0, 1, 2, 3)))]
    modes = ["members", "etcd"] * 2
    if not begins:
        times.append(rng.uniform(6.0, 11.0))
        modes.insert(0, "etcd")
    return [
        Event(round(at, 3), "auto failover", "", {"mode": mode}) for at, mode in zip(sorted(times), modes, strict=False)
    ]


def _trouble(rng: random.Random, config: Config, *, is_long: bool) -> list[Event]:
    kinds = rng.sample(sorted(_KINDS), rng.randint(2, 4))
    events = []
    for _ in range(rng.randint(3, 9)):
        at = round(rng.uniform(9.0, config.seconds), 3)
        events.append(_event(rng, at, rng.choices(kinds, [_KINDS[kind] for kind in kinds])[0], config))
    if is_long:
        events.append(
            Event(round(rng.uniform(9.0, 20.0), 3), "etcd away", "", {"lasts": round(rng.uniform(30, 70), 3)})
        )
    return events


def _event(rng: random.Random, at: float, kind: str, config: Config) -> Event:
    lasts = round(rng.choice((rng.uniform(0.5, 5), rng.uniform(5, 25))), 3)
    who = rng.choice(("master", "master", "slave 1", "slave 1" if config.pair else "slave 2"))
    match kind:
        case "etcd slow":
            return Event(at, kind, "", {"seconds": round(rng.uniform(0.5, 4.0), 3), "lasts": lasts})
        case "etcd restarts":
            return Event(at, kind, "", {"down": round(rng.uniform(0.1, 3.0), 3)})
        case "etcd loses":
            values = {"answers": rng.choice((0.3, 0.7, 1.0)), "delays": rng.choice((0.0, 0.3, 0.7))}
            return Event(at, kind, "", {**values, "lasts": lasts})
        case "etcd cut":
            return Event(at, kind, who, {"way": rng.choice(("both", "there", "back", "back")), "lasts": lasts})
        case "member dies":
            down = round(rng.choice((rng.uniform(0.1, 2), rng.uniform(2, 8), rng.uniform(8, 25))), 3)
            return Event(at, kind, who, {"power": rng.random() < 0.3, "down": down})
        case "the last dies":
            values = {"after": round(rng.uniform(0.5, 8), 3), "power": rng.random() < 0.5}
            return Event(at, kind, "", {**values, "down": round(rng.uniform(3, 15), 3)})
        case _:
            return Event(at, kind, "", {"lasts": lasts})


def of_pair(event: Event) -> Event:
    """What would happen to a third member happens to the second one."""
    values, target = dict(event.values), {"s2": "s1", "slave 2": "slave 1"}.get(event.target, event.target)
    if values.get("to") == "s2":
        values["to"] = "s1"
    if "downs" in values:
        values["downs"] = values["downs"][:2]
    return evolve(event, target=target, values=values)

"""What a seed stands for: a configuration and a schedule of events. Pure: the same seed, the same plan."""

import random
from typing import Any

from attrs import evolve, field, frozen

MEMBERS = ("m", "s1", "s2")
SLAVES = MEMBERS[1:]


@frozen(kw_only=True)
class Config:
    """How the group is set up."""

    synchronous: bool  # SYNC_MASTER.
    sync_flush: bool
    ack_flushed: bool
    need: int  # inSyncReplicas.
    need_min: int  # minInSyncReplicas.
    auto_resync: bool
    file_size: int
    sector: int
    same_ip: bool  # Both slaves run on one machine's address.
    seconds: float  # Of trouble, before everything heals.
    period: float  # Seconds between registrations.
    index: bool  # Messages are indexed by key.
    trail_max: int = 0  # Bytes that slaves take before they verify them; 0: none.
    roles: bool = False  # Members can change their roles,
    operators: bool = False  # and people ask for that.
    auto: str = "off"  # autoFailover.
    max_loss: int = 0  # autoFailoverMaxLossBytes.
    pair: bool = False  # Two members.
    etcd: bool = False  # They know an etcd, which keeps the group's record from the beginning, or from some time on,
    leave_seconds: float = 15.0  # and a slave that lacks bytes for so long leaves the in-sync set.

    @property
    def level(self) -> str:
        """What SEND_OK promises, in a word."""
        flush = "+flush" if self.sync_flush else ""
        if not self.synchronous:
            return f"L1{flush}" if self.sync_flush else "L0"
        return f"L3{flush}" if self.ack_flushed else f"L2{flush}"


@frozen
class Event:
    """Something happens at a time, virtual seconds since the start."""

    at: float
    kind: str
    target: str = ""
    values: dict[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        values = " ".join(f"{key}={value}" for key, value in self.values.items())
        return f"{self.at:8.3f} {self.kind} {self.target} {values}".rstrip()


@frozen(kw_only=True)
class Plan:
    """All of it."""

    seed: int
    config: Config
    events: tuple[Event, ...]

    def without(self, index: int) -> "Plan":
        """The same without one event, for making a failure smaller."""
        return evolve(self, events=self.events[:index] + self.events[index + 1 :])


def draw_trouble(seed: int) -> Plan:
    """The plan of a seed as far as machines, disks and the network go; role_plan.draw() adds operators."""
    rng = random.Random(f"plan {seed}")
    config = evolve(_config(rng), trail_max=_trail_max(random.Random(f"trail {seed}")))
    return Plan(seed=seed, config=config, events=_events(rng, config))


def _trail_max(rng: random.Random) -> int:
    return rng.choice((2000, 6000, 50_000)) if rng.random() < 0.4 else 0


def _config(rng: random.Random) -> Config:
    synchronous = rng.random() < 0.8
    # Two slaves with one IP are told apart by nothing in the stream: who comes back twice has both their voices.
    same_ip = rng.random() < 0.15
    need = rng.choice((2, 2, 3)) if synchronous and not same_ip else 2
    return Config(
        synchronous=synchronous,
        sync_flush=rng.random() < 0.4,
        ack_flushed=rng.random() < 0.5,
        need=need,
        need_min=rng.choice((1, 1, 1, 2)),
        auto_resync=rng.random() < 0.5,
        file_size=rng.choice((4096, 8192, 16_384)),
        sector=rng.choice((512, 4096)),
        same_ip=same_ip,
        seconds=rng.uniform(20, 45),
        period=rng.choice((10.0, 30.0)),
        index=rng.random() < 0.25,
    )


# Kinds of events and how often each is drawn.
_KINDS = {
    "crash": 10,  # kill -9, now.
    "crash in call": 8,  # The same at one of the next calls to the disk.
    "power cut": 6,
    "power cut in call": 6,
    "power cut of all": 3,
    "stop": 4,
    "cut": 10,  # A link, one way or both.
    "slow link": 6,
    "tiny pieces": 5,
    "flip": 6,
    "reset": 8,
    "reset in frame": 8,
    "reset of half": 6,
    "slow disk": 5,
    "sync fails": 3,
    "clock": 5,
    "retention": 5,
    "stranger": 8,
    "name server restarts": 3,
    "name server away": 4,
    "master moves": 2,
    "wiped": 2,  # A slave begins with an empty directory.
    "burst": 8,
}


def _events(rng: random.Random, config: Config) -> tuple[Event, ...]:
    # Most seeds have a few kinds of trouble, and those often: all kinds at once hide each other.
    kinds = rng.sample(sorted(_KINDS), rng.randint(3, 9))
    weights = [_KINDS[kind] for kind in kinds]
    count = rng.randint(4, 18)
    times = sorted(rng.uniform(1.0, config.seconds) for _ in range(count))
    return tuple(_event(rng, round(at, 3), rng.choices(kinds, weights)[0], config) for at in times)


def _event(rng: random.Random, at: float, kind: str, config: Config) -> Event:
    def one(*names: str) -> str:
        return rng.choice(names or MEMBERS)

    down = round(rng.choice((0.05, rng.uniform(0.1, 3), rng.uniform(1, 15))), 3)
    lasts = round(rng.choice((rng.uniform(0.2, 4), rng.uniform(4, 30))), 3)
    match kind:
        case "crash" | "power cut" | "stop":
            return Event(at, kind, one(), {"down": down})
        case "crash in call" | "power cut in call":
            return Event(at, kind, one(), {"calls": rng.choice((rng.randint(1, 8), rng.randint(1, 80))), "down": down})
        case "power cut of all":
            return Event(at, kind, "", {"downs": [round(rng.uniform(0.05, 8), 3) for _ in MEMBERS]})
        case "cut":
            values = {"to": one(*SLAVES), "way": rng.choice(("both", "there", "back")), "lasts": lasts}
            return Event(at, kind, rng.choice(("m", "m", "m", "n")), values)
        case "slow link":
            return Event(at, kind, one(*SLAVES), {"delay": round(rng.uniform(0.01, 1.5), 3), "lasts": lasts})
        case "tiny pieces":
            return Event(at, kind, one(*SLAVES), {"size": rng.choice((1, 3, 13, 100)), "lasts": min(lasts, 1.5)})
        case "flip":
            # Reports carry no checksum: a bit of theirs that flips cannot be noticed, and somebody would be told a lie.
            back = rng.random() < 0.3 and not config.synchronous
            return Event(at, kind, one(*SLAVES), {"pieces": rng.randint(1, 3), "back": back})
        case "reset" | "reset of half":
            return Event(at, kind, one(*SLAVES))
        case "reset in frame":
            return Event(at, kind, one(*SLAVES), {"bytes": rng.randint(1, rng.choice((20, 3000)))})
        case "slow disk":
            return Event(at, kind, one(), {"delay": round(rng.uniform(0.05, 2.5), 3), "lasts": lasts})
        case "sync fails":
            return Event(at, kind, one(), {"syncs": rng.randint(1, 6)})
        case "clock":
            jump = rng.choice((-7200, -3600, -30, 25, 3600, 86_400))
            return Event(at, kind, one(), {"seconds": jump})
        case "retention":
            return Event(at, kind, one(), {"files": rng.randint(1, 4)})
        case "stranger":
            word = rng.choice(("huge ack", "garbage", "honest then forged", "end of log", "silent", "negative"))
            return Event(at, kind, "", {"says": word})
        case "name server away":
            return Event(at, kind, "", {"lasts": lasts})
        case "wiped":
            return Event(at, kind, one(*SLAVES), {"down": down})
        case "master moves":
            return Event(at, kind, "m", {"down": down})
        case "burst":
            return Event(at, kind, "", {"count": rng.randint(10, 60)})
        case _:
            return Event(at, kind)

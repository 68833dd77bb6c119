"""The replication stream between a slave and its master: slow, stalled, cut, half closed, with a bit flipped."""

import time
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.proxy import TO_MASTER, TO_SLAVE, Proxy


@define(eq=False)
class LinkFault(Fault):
    """Of one slave's link, or of all."""

    trace: ClassVar[str] = (
        r"replication interrupted|connection of a slave ended|slave left|suspended|FLUSH_SLAVE_TIMEOUT|SLAVE_NOT_AV"
    )
    proxies: list[Proxy] = field(init=False)
    what: str = field(init=False)

    def prepare(self) -> None:
        self.proxies = [self.group.proxies[each.label] for each in self.group.slaves()]
        self.hold_s = self.rng.uniform(1.0, 4.0)
        self.what = self.choose()

    def choose(self) -> str:
        """What, in words."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        return f"{self.what}, for {self.hold_s:.1f} s"

    def one(self) -> None:
        """Only one of the slaves has such a link."""
        self.proxies = [self.rng.choice(self.proxies)]

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.link.clear()


@define(eq=False)
class Stalls(LinkFault):
    """One link after the other stalls, in one direction; released in random order (swizzle-clogging)."""

    ways: ClassVar[tuple[str, ...]] = (TO_SLAVE, TO_MASTER)
    way: str = field(init=False)

    def choose(self) -> str:
        self.way = self.rng.choice(self.ways)
        self.hold_s = self.rng.uniform(4.0, 7.0)
        self.rng.shuffle(self.proxies)
        return f"the links of {len(self.proxies)} slaves stall one after the other {self.way}"

    def inject(self) -> None:
        for proxy in self.proxies:
            proxy.link.stalled = self.way
            time.sleep(self.rng.uniform(0.1, 0.8))

    def heal(self) -> None:
        self.rng.shuffle(self.proxies)
        LinkFault.heal(self)


class StallsToSlave(Stalls):
    ways = (TO_SLAVE,)


class StallsToMaster(Stalls):
    ways = (TO_MASTER,)


@define(eq=False)
class SlowAndTiny(LinkFault):
    """Each piece is late, and the first bytes of it come one by one; then the connection is cut in the middle."""

    at: int = field(init=False)

    def choose(self) -> str:
        self.at = self.rng.choice([self.rng.randrange(1, 12), self.rng.randrange(12, 100_000)])
        return f"links that bring bytes one by one and late, and end after {self.at} of them"

    def inject(self) -> None:
        for proxy in self.proxies:
            link = proxy.link
            link.delay_s, link.tiny, link.cut_in = 0.03, 40, self.at


@define(eq=False)
class HalfClose(LinkFault):
    """The slave is told that nothing more comes; its own direction stays open."""

    def choose(self) -> str:
        return "links that are closed in one direction"

    def inject(self) -> None:
        for proxy in self.proxies:
            proxy.link.half_close = True


@define(eq=False)
class Flip(LinkFault):
    """A bit of a message, or of its length."""

    trace: ClassVar[str] = r"a bad record"
    where: str = field(init=False)

    def choose(self) -> str:
        self.where = self.rng.choice(["body", "size"])
        self.one()
        return f"a bit of a record's {self.where} flips on its way to a slave"

    def inject(self) -> None:
        (proxy,) = self.proxies
        before, deadline = proxy.link.flipped, time.monotonic() + 10
        proxy.link.flip = self.where
        while proxy.link.flipped == before:
            assert time.monotonic() < deadline, "no record passed that could be damaged"
            time.sleep(0.01)

"""Rules of admission to the HA port, by IP of the registered and allowed slaves. Pure.

A connection is given bytes of the log only when its IP is that of a registered slave of this broker group, or lies in
one of the networks of `haAllowedSlaves`, or it shows a ticket of a member. Where the group's secret is required, being registered
is not enough: anybody may register at a name server. RocketMQ gives the log to every peer. The classic stream carries no name and
no secret, so an untrusted process on a slave's own machine cannot be distinguished from the slave, unless that shows a ticket.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import get_args

from attrs import define, field, frozen

from twinlog.ha.errors import Cause
from twinlog.store.util.host_name import is_host_name

CAUSES: tuple[Cause, ...] = get_args(Cause)
REFUSALS_REMEMBERED = 64

Network = IPv4Network | IPv6Network


def parse_allowed(text: str) -> tuple[tuple[Network, ...], tuple[str, ...]]:
    """Networks and host names in a list such as "10.0.0.0/8, 192.168.1.7, slave-2". Raises ValueError, naming the part that is
    none of these.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    names = tuple(part for part in parts if is_host_name(part) and not part.endswith("."))
    return tuple(_network(part) for part in parts if part not in names), names


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither an IP address nor a network such as 10.0.0.0/8, nor a host name: {error}"
        ) from error


def _address(ip: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(ip.partition("%")[0])  # fe80::1%eth0
    except ValueError:  # No IP, but a name: a simulated peer's.
        return None


@frozen
class Proofs:
    """The group's secrets: ids of those that prove a ticket, and whether one has to be proven. Without a secret all count."""

    accepted: tuple[str, ...] = ()
    is_required: bool = False

    def allow(self, proof: str) -> bool:
        """True for a ticket that was given for a request signed with this secret; "": it was not signed."""
        return proof in self.accepted if proof or self.is_required else True


@define(eq=False)
class AdmissionRules:
    """The registered slaves, by IP or id, the allowed networks, and the allowed host names, whose IPs `ips_of` knows."""

    allowed: tuple[Network, ...] = ()
    allowed_names: tuple[str, ...] = ()
    ips_of: Callable[[str], Collection[str]] = lambda _host: ()
    registered: tuple[str, ...] = field(default=(), init=False)  # One IP, or the id of a member, per registered slave.
    # IPs, and ids of members, that may follow, and do not count yet.
    welcome: frozenset[str] = field(default=frozenset(), init=False)
    proofs: Proofs = field(default=Proofs(), init=False)
    _entries: Counter[str] = field(factory=Counter, init=False)

    def members_changed(self, names: Collection[str], welcome: Collection[str] = ()) -> None:
        """Take the IPs or ids of the slaves that count, one for each slave; `welcome`: those that may follow without that."""
        self.registered, self.welcome = tuple(names), frozenset(welcome)
        self._entries = Counter(self.registered)

    def registered_with(self, ip: str) -> int:
        """Number of slaves that are registered with this IP."""
        return self._entries[ip]

    def is_allowed(self, ip: str) -> bool:
        """True if haAllowedSlaves names it."""
        address = _address(ip) if self.allowed else None
        if address is not None and any(address in network for network in self.allowed):
            return True
        return any(ip in self.ips_of(name) for name in self.allowed_names)

    def trusts(self, ip: str) -> bool:
        """True if a slave there counts, or is allowed."""
        return self._entries[ip] > 0 or self.is_allowed(ip)

    def admits(self, ip: str, member: str = "", proof: str = "") -> bool:
        """True if a connection from there is served the log; `member`: the member that showed a ticket on it, `proof`: the
        secret that it was given for.
        """
        if member and self.proofs.allow(proof) and (self._entries[member] > 0 or member in self.welcome):
            return True
        return self.is_allowed(ip) or (not self.proofs.is_required and (ip in self.welcome or self._entries[ip] > 0))

    def voices(self, connected: Iterable[str]) -> list[str]:
        """The IPs whose acknowledgements count, one for each slave that may: each registered slave, and each other IP
        that is connected and allowed, once.
        """
        others = {ip for ip in connected if not self._entries[ip] and self.is_allowed(ip)}
        return [*self.registered, *sorted(others)]

    def why_not(self, ip: str) -> str:
        """Reason why this IP is refused, as text."""
        if self.proofs.is_required:
            return (
                f"no ticket of a member that has the group's secret (haSecret=required) was shown, and {ip} is not in "
                f"haAllowedSlaves ({self._allowed_text})"
            )
        return (
            f"{ip} is not the IP of a registered slave of this broker group (these are: "
            f"{', '.join(dict.fromkeys([*self.registered, *sorted(self.welcome)])) or 'none'}) nor in haAllowedSlaves "
            f"({self._allowed_text})"
        )

    @property
    def _allowed_text(self) -> str:
        return ", ".join(map(str, (*self.allowed, *self.allowed_names))) or "empty"


@frozen
class Refusal:
    """Refusals of one IP for one cause, and the time of the last."""

    ip: str
    cause: Cause
    why: str
    count: int
    at: float  # Seconds, monotonic.


@define(eq=False)
class Refusals:
    """Counts by cause, and the refusals of the IPs that were refused last."""

    counts: Counter[Cause] = field(factory=lambda: Counter(dict.fromkeys(CAUSES, 0)), init=False)
    _last: dict[tuple[str, Cause], Refusal] = field(factory=dict, init=False)  # The newest is the last one.

    def note(self, ip: str, cause: Cause, why: str, now: float) -> bool:
        """Count a refusal; True for the first of this IP and cause since it was served or forgotten."""
        self.counts[cause] += 1
        before = self._last.pop((ip, cause), None)
        self._last[ip, cause] = Refusal(ip, cause, why, before.count + 1 if before else 1, now)
        if len(self._last) > REFUSALS_REMEMBERED:
            del self._last[next(iter(self._last))]
        return before is None

    def served(self, ip: str) -> None:
        """Forget an IP that is served now: its next refusal is logged again."""
        for key in [key for key in self._last if key[0] == ip]:
            del self._last[key]

    @property
    def last(self) -> tuple[Refusal, ...]:
        """Refusals by IP and cause, the newest last."""
        return tuple(self._last.values())

"""Why a message has too few acknowledgements, for people: who is there, how far behind, who is expected, what to do. Pure."""

import time

from attrs import frozen

from twinlog.ha.policy.in_sync import Slave


@frozen(kw_only=True)
class Standing:
    """Who there is to acknowledge. Offsets in bytes."""

    slaves: tuple[Slave, ...]
    registered: tuple[str, ...]  # IPs.
    needed: int  # So many slaves.
    end_offset: int  # Of the newest message that asked.
    gap_max: int
    alone_since: float  # Wall clock; since when no slave counts.

    @property
    def counted(self) -> int:
        """How many count."""
        return sum(slave.counted for slave in self.slaves)

    @property
    def eligible(self) -> int:
        """How many of these are not suspended."""
        return sum(slave.counted and not slave.suspended for slave in self.slaves)


def describe(standing: Standing) -> str:
    """Everybody that is there, and what to do."""
    parts = []
    if not standing.counted:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(standing.alone_since))
        parts.append(f"no slave connected since {since}")
    for slave in standing.slaves:
        behind = max(standing.end_offset - slave.ack_offset, 0)
        why = f"; {slave.reason}" if slave.reason else ""
        parts.append(f"slave {slave.address} has acknowledged {slave.ack_offset}, {behind} bytes behind{why}")
    parts.append(f"registered slaves: {', '.join(standing.registered) or 'none'}")
    return f"{'; '.join(parts)}. {_advice(standing)}"


def describe_missing(standing: Standing) -> str:
    """Why nobody is waited for, and the rest."""
    if standing.eligible >= standing.needed:
        why = f"all slaves are {standing.gap_max} bytes or more behind"
    elif standing.counted >= standing.needed:
        why = "the slaves that are there are suspended"
    else:
        why = f"{standing.needed} needed, {standing.eligible} there to wait for"
    return f"{why}. {describe(standing)}"


def _advice(standing: Standing) -> str:
    if not standing.registered:
        return "Start a slave under this broker's brokerName, and see that it reaches the name server"
    if standing.counted < standing.needed:
        return "See that the registered slaves run, and reach this master's HA port"
    return "Look at the slaves' logs and disks, and at the network between"

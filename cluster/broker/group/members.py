"""Who the registered slaves of a group are. Pure: told what name servers answer, and when.

A name server that was restarted knows nobody until everybody has registered again, which takes a RocketMQ slave up to 30 s. A
slave that was registered is therefore kept for as long as a name server itself keeps a broker that is silent: its connection,
and the acks on it, may be as good as ever.
"""

from collections.abc import Iterable

from attrs import define, field

KEPT_SECONDS = 120.0  # RouteInfoManager.BROKER_CHANNEL_EXPIRED_TIME, RocketMQ 4.9.8.


@define
class RegisteredSlaves:
    """The slaves by (brokerId, IP), with the last time that a name server named them."""

    _seen: dict[tuple[int, str], float] = field(factory=dict, init=False)

    def answered(self, slaves: Iterable[tuple[int, str]], now: float) -> list[str]:
        """Take what all name servers together answered; the IPs of the slaves that count, one for each slave.

        A slave that moved to another IP keeps one entry: the id counts.
        """
        named = set(slaves)
        ids = {broker_id for broker_id, _ in named}
        self._seen = {
            slave: seen for slave, seen in self._seen.items() if now - seen < KEPT_SECONDS and slave[0] not in ids
        }
        self._seen.update(dict.fromkeys(named, now))
        return sorted(ip for _, ip in self._seen)

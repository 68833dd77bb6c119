"""What is known of a cluster at one moment, asked of name servers and members. cluster/observe/health.py judges it."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from twinlog.cluster.client.route import BrokerAddresses
from twinlog.cluster.observe.members import Member, is_master


@frozen
class Probe:
    """Whether a TCP port takes a connection from here."""

    address: str
    error: str | None  # None: it does.


@frozen(kw_only=True)
class MemberFacts:
    """One broker. Empty mappings: not told, or not asked for."""

    member: Member
    status: Mapping[str, Any] = field(factory=dict)  # Request 20001; only twinlog answers it.
    runtime: Mapping[str, str] = field(factory=dict)  # Request 28.
    config: Mapping[str, str] = field(factory=dict)  # Request 26, by RocketMQ's keys.
    ha_port: Probe | None = None
    clock_ahead_seconds: float | None = None  # Of this machine's clock; what the answer's way took may be in it.

    @property
    def is_twinlog(self) -> bool:
        """Whether it is one of ours."""
        return bool(self.status)

    def number(self, key: str) -> int | None:
        """A whole number out of its configuration, its runtime info or, where those were not asked for, its status."""
        text = self.config.get(key) or self.runtime.get(key) or str(self.status.get(key, ""))
        return int(text) if text.lstrip("-").isdigit() else None


@frozen(kw_only=True)
class ClusterFacts:
    """Everybody. `name_servers`: what each of them says of the members, or why it says nothing."""

    groups: tuple[BrokerAddresses, ...]
    members: tuple[MemberFacts, ...]
    name_servers: Mapping[str, tuple[BrokerAddresses, ...] | str] = field(factory=dict)

    def group(self, name: str) -> tuple[MemberFacts, ...]:
        """The members of one group, masters first."""
        found = [each for each in self.members if each.member.group == name]
        return tuple(sorted(found, key=lambda each: (each.member.role != "master", each.member.broker_id)))

    def masters(self, name: str) -> tuple[MemberFacts, ...]:
        """Those of a group that say they are its master, and are not kept from it."""
        return tuple(each for each in self.group(name) if is_master(each.member))

    @property
    def group_names(self) -> tuple[str, ...]:
        """Every group that somebody is in."""
        return tuple(sorted({each.member.group for each in self.members} | {each.broker_name for each in self.groups}))

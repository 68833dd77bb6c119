"""In-sync sets of groups whose record etcd keeps. Frozen values; made by in_sync.py."""

from attrs import field, frozen


@frozen(kw_only=True)
class EtcdView:
    """etcd as one member sees it."""

    member: str
    why: str | None = field(metadata={"doc": "why it cannot be relied on now; null: it can"})
    since_ms: int | None = field(metadata={"doc": "since when, ms since 1970"})
    is_refused: bool = field(
        metadata={"doc": "it answers, and the member must not use what it holds, or is not let in"}
    )


@frozen(kw_only=True)
class InSyncSet:
    """The in-sync set of a group, as the newest version of its record says that is known to be in force."""

    group: str
    in_sync: tuple[str, ...]
    outside: tuple[str, ...] = field(
        metadata={"doc": "voters that may lack what is acknowledged: not elected, not waited for"}
    )
    acks_needed: int = field(metadata={"doc": "members that must hold a message now"})
    acks_configured: int = field(metadata={"doc": "inSyncReplicas, which a smaller set lowers"})
    promises_needed: int = field(metadata={"doc": "members of the set that must promise for a failover"})
    version: int
    epoch: int
    level: str | None = field(metadata={"doc": "the level of an acknowledgement now, as the master says"})
    changed_ms: int | None = field(metadata={"doc": "when the set changed last; null: not since the members started"})
    change_why: str | None
    why_not_changed: str | None = field(metadata={"doc": "why it stays, although a member lacks behind"})
    etcd: tuple[EtcdView, ...]

    @property
    def is_one_copy(self) -> bool:
        """True if one member alone holds what is acknowledged now."""
        return len(self.in_sync) == 1

    @property
    def members(self) -> int:
        """Number of members that vote."""
        return len(self.in_sync) + len(self.outside)

    @property
    def without_etcd(self) -> tuple[EtcdView, ...]:
        """Members that cannot rely on etcd now."""
        return tuple(each for each in self.etcd if each.why)

    @property
    def text(self) -> str:
        """The set in a few words: `one copy: broker-a-0 alone`, `2 of 3 in sync: broker-a-0, broker-a-1`."""
        if self.is_one_copy:
            return f"one copy: {self.in_sync[0]} alone is in sync, of {self.members} members"
        return f"{len(self.in_sync)} of {self.members} in sync: {', '.join(self.in_sync)}"

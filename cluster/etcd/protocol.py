"""The part of etcd that a group uses: the operations and their results. No input or output; `Etcd` in client.py is the real one.

Keys are relative to `etcdPrefix`, in both directions. Source: api/etcdserverpb/rpc.proto and api/mvccpb/kv.proto, etcd API v3.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from attrs import frozen

ABSENT = 0  # The mod_revision that a swap expects of a key that is not there.


@frozen
class Header:
    """The member that answered. The cluster's id is made of its members' addresses and its token: data lost or restored with
    the same ones leaves it as it was, and is seen by a `revision` below one that was seen before.
    """

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


@frozen
class KeyValue:
    """A key at one revision of the store. `version` counts the writes since the key was created; `lease` 0: none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


@frozen
class KeyValues:
    """All keys below a prefix, in their order, as they were at `revision`."""

    items: tuple[KeyValue, ...]
    revision: int


@frozen
class Put:
    """One more write of a swap, done or not done together with it."""

    key: str
    value: bytes
    lease: int = 0


@frozen
class Swapped:
    """The swap was done, and is committed; `revision` is the key's new mod_revision."""

    revision: int


@frozen
class NotSwapped:
    """etcd compared, and the key's mod_revision is not the expected one: `current` is what is there, None: nothing.

    Only an answer of etcd makes one of these. Whose value `current` is says whether an earlier swap of ours had happened.
    """

    current: KeyValue | None
    revision: int


@frozen
class Lease:
    """A lease that was granted, or kept alive. `ttl`: seconds that it lives from then on, as etcd decided."""

    id: int
    ttl: int


@frozen
class Changed:
    """A key was written, `current`, or deleted, `current` None, at `revision`."""

    key: str
    current: KeyValue | None
    revision: int


@frozen
class Again:
    """The watch has ended, whatever for, and says nothing about the key: get it, and watch from the revision after that."""

    why: str


Event: TypeAlias = Changed | Again


@frozen(kw_only=True)
class Status:
    """A member of etcd as it says itself. `leader` 0: it knows none. `alarms`: NOSPACE, CORRUPT."""

    endpoint: str
    version: str
    cluster_id: int
    member_id: int
    leader: int
    raft_term: int
    raft_index: int
    revision: int
    db_size: int
    db_size_in_use: int
    alarms: tuple[str, ...]
    errors: tuple[str, ...]
    latency_ms: float

    @property
    def is_leader(self) -> bool:
        """True when it leads."""
        return self.leader == self.member_id


@frozen(kw_only=True)
class Health:
    """An endpoint as this process sees it: a status, or the error instead of one."""

    endpoint: str
    status: Status | None
    error: Exception | None


class Store(Protocol):
    """A store of keys with revisions. Every operation may raise EtcdError; see errors.py for what each kind proves."""

    @property
    def header(self) -> Header | None:
        """The header of the newest answer; None before the first."""

    @property
    def cluster_id(self) -> int:
        """The id of the cluster that answered last; 0 before the first answer."""

    async def get(self, key: str) -> KeyValue | None:
        """Read a key, linearizably: no older than anything that was committed before the call. Never raises Unknown."""

    async def get_prefix(self, prefix: str) -> KeyValues:
        """Read all keys that start so, linearizably, at one revision. Never raises Unknown."""

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Write a key, whatever is there; return the revision. With a lease the key goes when the lease does."""

    async def swap(
        self, key: str, expected_mod_revision: int, value: bytes, *, lease: int = 0, also: Sequence[Put] = ()
    ) -> Swapped | NotSwapped:
        """Write a key if its mod_revision is still the expected one, ABSENT: if it is not there, and `also` with it."""

    async def delete(self, key: str) -> bool:
        """Delete a key; say whether it was there."""

    async def grant(self, ttl: int) -> Lease:
        """Make a lease of so many seconds. After Unknown one may be there that nobody knows; it expires by itself."""

    async def keep_alive(self, lease: int) -> Lease:
        """Let a lease live its whole time again. Raises LeaseNotFound; never Unknown, as it may simply be repeated."""

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete its keys. One that is gone already is no error."""

    def watch(self, key: str, *, start_revision: int) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Events of a key from a revision on, oldest first. The last one is Again; nothing is raised."""

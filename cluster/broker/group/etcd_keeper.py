"""The group's record in etcd: RecordKeeper of ha/election/commit.py over cluster/etcd.

    PREFIX CLUSTER/GROUP/record   the record in force, JSON; only swapped
    PREFIX CLUSTER/GROUP/master   who serves, by its own word; lives with a lease

docs/reference/etcd.md describes keys and values for people.
"""

from contextlib import suppress
from typing import Any

import orjson
import trio
from attrs import define, field, frozen

from twinlog.cluster.etcd.client import Etcd
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.errors import EtcdError, LeaseNotFound, Refused, Unknown
from twinlog.cluster.etcd.protocol import ABSENT, KeyValue, Store, Swapped
from twinlog.ha.election.commit import (
    KeeperError,
    KeeperRefusedError,
    KeeperSilentError,
    KeptRecord,
    ResultUnknownError,
)
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.plain import from_plain, to_plain

FORMAT = 1
RECORD, MASTER = "record", "master"


@frozen(kw_only=True)
class KeptValue:
    """Value of the key `record`. A later format is refused."""

    format: int
    cluster: str
    group: str
    record: GroupRecord


def encode_record(cluster: str, group: str, record: GroupRecord) -> bytes:
    """The reverse of decode_record."""
    return orjson.dumps(to_plain(KeptValue(format=FORMAT, cluster=cluster, group=group, record=record)))


def decode_record(key: str, cluster: str, group: str, value: bytes) -> GroupRecord:
    """The record in a value. Raises KeeperRefusedError: of another group, a later version of twinlog, or no record at all."""
    try:
        raw: Any = orjson.loads(value)
        if isinstance(raw, dict) and isinstance(raw.get("format"), int) and raw["format"] > FORMAT:
            raise KeeperRefusedError(
                f"etcd's key {key} has format {raw['format']}, of a later version of twinlog: this one knows {FORMAT}. Next: run "
                "that version on every member"
            )
        kept = from_plain(KeptValue, raw)
    except ValueError as error:
        raise KeeperRefusedError(
            f"etcd's key {key} holds no record of a group: {error}. Next: set another etcdPrefix, or see who wrote that"
        ) from error
    if (kept.cluster, kept.group) != (cluster, group):
        raise KeeperRefusedError(
            f"etcd's key {key} holds the record of {kept.group} in cluster {kept.cluster}, and this is {group} in {cluster}."
            " Next: set another etcdPrefix"
        )
    return kept.record


@define(eq=False)
class EtcdKeeper:
    """`cluster_name`, `group`: brokerClusterName and brokerName. Opened by the first call."""

    config: EtcdConfig
    cluster_name: str
    group: str
    store: Store | None = None  # None: the real one.
    _own: Etcd | None = field(default=None, init=False)
    _opening: trio.Lock = field(factory=trio.Lock, init=False)
    _lease: int = field(default=0, init=False)
    _announced: str = field(default="", init=False)  # Whom the key names, as far as known.

    @property
    def cluster(self) -> str:
        """The id of etcd's cluster as it writes it, hexadecimal; "": it has not answered yet."""
        known = self.store.cluster_id if self.store is not None else 0
        return f"{known:x}" if known else ""

    async def read(self) -> KeptRecord:
        """Read both keys, at one revision. Raises KeeperError."""
        try:
            found = await (await self._opened()).get_prefix(self._key(""))
        except EtcdError as error:
            raise _kept_from(error) from error
        values = {each.key: each for each in found.items}
        master = values.get(self._key(MASTER))
        self._announced = master.value.decode(errors="replace") if master is not None else ""
        return self._kept(values.get(self._key(RECORD)))

    async def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        """Put a record in the place of `before`. Raises KeeperError."""
        value = encode_record(self.cluster_name, self.group, record)
        try:
            result = await (await self._opened()).swap(self._key(RECORD), before.revision or ABSENT, value)
        except EtcdError as error:
            raise _kept_from(error) from error
        if isinstance(result, Swapped):
            return KeptRecord(record=record, revision=result.revision, master=self._announced)
        return self._kept(result.current)

    async def announce(self, master: str, seconds: float) -> None:
        """Tell who serves, for so many seconds. Raises KeeperError."""
        try:
            store = await self._opened()
            if self._lease and self._announced == master:
                try:
                    await store.keep_alive(self._lease)
                    return
                except LeaseNotFound:
                    self._lease = 0
            self._lease = self._lease or (await store.grant(round(seconds))).id
            await store.put(self._key(MASTER), master.encode(), lease=self._lease)
            self._announced = master
        except LeaseNotFound as error:
            self._lease = 0
            raise _kept_from(error) from error
        except EtcdError as error:
            raise _kept_from(error) from error

    async def aclose(self) -> None:
        """End what is told of this member, and close all connections."""
        if self._own is None:
            return
        with trio.move_on_after(1, shield=True):
            if self._lease:
                with suppress(EtcdError):
                    await self._own.revoke(self._lease)
            await self._own.aclose()

    def _kept(self, found: KeyValue | None) -> KeptRecord:
        if found is None:
            return KeptRecord(master=self._announced)
        record = decode_record(self.config.prefix + found.key, self.cluster_name, self.group, found.value)
        return KeptRecord(record=record, revision=found.mod_revision, master=self._announced)

    def _key(self, name: str) -> str:
        return f"{self.cluster_name}/{self.group}/{name}"

    async def _opened(self) -> Store:
        """The store. Raises EtcdError: certificates that cannot be read."""
        async with self._opening:
            if self.store is None:
                own = Etcd(self.config)
                await own.open()
                self.store = self._own = own
        return self.store


def _kept_from(error: EtcdError) -> KeeperError:
    """The same in the words of ha/election/commit.py."""
    if isinstance(error, Unknown):
        return ResultUnknownError(str(error))
    return KeeperRefusedError(str(error)) if isinstance(error, Refused) else KeeperSilentError(str(error))

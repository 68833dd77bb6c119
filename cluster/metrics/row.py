"""A metric is one row: its name as it is scraped, type, help, labels, and how a snapshot's numbers become its samples."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from attrs import frozen

from twinlog.cluster.metrics.snapshot import BrokerSnapshot, Snapshot
from twinlog.store.util.histogram import HistogramCounts

Kind = Literal["counter", "gauge", "histogram"]
Value = float | HistogramCounts
Sample = tuple[tuple[str, ...], Value]  # Values of the row's own labels, and the value.


@frozen
class Scope:
    """Labels that many rows begin with."""

    labels: tuple[str, ...]
    values: Callable[[Any], tuple[str, ...]]


# As RocketMQ 5 labels its own; node_id is brokerName there.
NODE = Scope(
    ("cluster", "node_type", "node_id"),
    lambda snapshot: (snapshot.cluster, "broker", snapshot.group),
)
DISK = Scope(
    (*NODE.labels, "storage_type", "storage_medium"), lambda snapshot: (*NODE.values(snapshot), "local", "disk")
)
GROUP = Scope(("cluster", "group"), lambda snapshot: (snapshot.cluster, snapshot.group))
MEMBER = Scope((*GROUP.labels, "member"), lambda snapshot: (*GROUP.values(snapshot), snapshot.member))
OWN = Scope((*GROUP.labels, "replica"), MEMBER.values)  # A member as one of the copies of a log.
PROCESS = Scope((), lambda _snapshot: ())


@frozen(kw_only=True)
class Metric:
    """`name` is what Prometheus stores, of a histogram without _bucket.

    `of` says whose snapshots it is read from. `read` gives the samples, of a row without labels of its own the value; no sample
    and None stand for what is not known. A row without `read` comes from prometheus-client's own collector.
    """

    name: str
    kind: Kind
    help: str
    scope: Scope = MEMBER
    labels: tuple[str, ...] = ()
    of: tuple[type, ...] = (BrokerSnapshot,)
    read: Callable[[Any], Iterable[Sample] | Value | None] | None = None

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of all labels, in order."""
        return (*self.scope.labels, *self.labels)

    def samples(self, snapshot: Snapshot) -> list[Sample]:
        """Samples with the values of all labels."""
        assert self.read is not None
        found = self.read(snapshot)
        if found is None:
            return []
        if isinstance(found, (int, float, HistogramCounts)):
            found = (((), found),)
        base = self.scope.values(snapshot)
        return [((*base, *values), value) for values, value in found]


counter = partial(Metric, kind="counter")
gauge = partial(Metric, kind="gauge")
histogram = partial(Metric, kind="histogram")

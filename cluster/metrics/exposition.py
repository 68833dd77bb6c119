"""A snapshot as text for Prometheus, by prometheus-client. For the thread of HTTP: the only importer of prometheus_client."""

import math
from collections.abc import Iterable, Iterator

from attrs import frozen
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from twinlog.cluster.metrics.ha_rows import HA
from twinlog.cluster.metrics.process_rows import AUDIT, NAMESRV, OWN_PROCESS, STORE
from twinlog.cluster.metrics.row import Metric
from twinlog.cluster.metrics.snapshot import Snapshot
from twinlog.cluster.metrics.traffic_rows import TRAFFIC
from twinlog.store.util.histogram import BOUNDS, HistogramCounts

_PROCESS = ProcessCollector(registry=None)
_LE = tuple("+Inf" if math.isinf(bound) else repr(bound) for bound in BOUNDS)


def expose(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The body and its content type: OpenMetrics when `accept`, a request's Accept header, asks for it."""
    encode, content_type = choose_encoder(accept)
    return encode(_Registry(_Snapshot(snapshot))), content_type


class _Registry(CollectorRegistry):
    """A registry of one collector, without the check for duplicate names, which cannot occur."""

    def __init__(self, collector: "_Snapshot") -> None:
        super().__init__(auto_describe=False)
        self._only = collector

    def collect(self) -> Iterable[Family]:
        return self._only.collect()


@frozen
class _Snapshot(Collector):
    snapshot: Snapshot

    def collect(self) -> Iterator[Family]:
        """All families of this kind of process, also those without a sample, so that type and help are visible."""
        for metric in METRICS:
            if isinstance(self.snapshot, metric.of) and metric.read is not None:
                yield _family(metric, self.snapshot)
        yield from _PROCESS.collect()


def _family(metric: Metric, snapshot: Snapshot) -> Family:
    samples = metric.samples(snapshot)
    labels = metric.all_labels
    match metric.kind:
        case "counter":
            counter = CounterMetricFamily(metric.name, metric.help, labels=labels)
            for values, value in samples:
                assert not isinstance(value, HistogramCounts)
                counter.add_metric(values, float(value))
            return counter
        case "gauge":
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=labels)
            for values, value in samples:
                assert not isinstance(value, HistogramCounts)
                gauge.add_metric(values, float(value))
            return gauge
        case "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
            for values, counts in samples:
                assert isinstance(counts, HistogramCounts)
                histogram.add_metric(values, list(zip(_LE, _sums(counts), strict=True)), counts.sum)
            return histogram


def _sums(counts: HistogramCounts) -> Iterator[float]:
    """Prometheus's buckets hold all that took no longer."""
    total = 0
    for count in counts.counts:
        total += count
        yield float(total)


FAMILIES: dict[str, tuple[Metric, ...]] = {
    "Messages and clients": TRAFFIC,
    "The store": STORE,
    "Replication": HA,
    "Audits": AUDIT,
    "Name servers": NAMESRV,
    "The process": OWN_PROCESS,
}
METRICS: tuple[Metric, ...] = tuple(metric for family in FAMILIES.values() for metric in family)

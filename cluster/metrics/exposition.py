"""A snapshot as text for Prometheus, by prometheus-client. For the thread of HTTP: the only importer of prometheus_client."""

import math
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

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
    return encode(_Registry(snapshot)), content_type


class _Registry(CollectorRegistry):
    """A registry for one snapshot, without the check for duplicate names, which cannot occur."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(auto_describe=False)
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """All families of this kind of process, also those without a sample, so that type and help are visible."""
        for metric in METRICS:
            if isinstance(self._snapshot, metric.of) and metric.read is not None:
                yield _family(metric, self._snapshot)
        yield from _PROCESS.collect()


def _family(metric: Metric, snapshot: Snapshot) -> Family:
    samples, labels = metric.samples(snapshot), metric.all_labels
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for values, counts in samples:
            assert isinstance(counts, HistogramCounts)
            up_to = map(float, accumulate(counts.counts))  # Prometheus's buckets hold all that took no longer.
            histogram.add_metric(values, list(zip(_LE, up_to, strict=True)), counts.sum)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(metric.name, metric.help, labels=labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.help, labels=labels)
    for values, value in samples:
        assert not isinstance(value, HistogramCounts)
        family.add_metric(values, float(value))
    return family


FAMILIES: dict[str, tuple[Metric, ...]] = {
    "Messages and clients": TRAFFIC,
    "The store": STORE,
    "Replication": HA,
    "Audits": AUDIT,
    "Name servers": NAMESRV,
    "The process": OWN_PROCESS,
}
METRICS: tuple[Metric, ...] = tuple(metric for family in FAMILIES.values() for metric in family)

"""All metrics. /metrics and docs/reference/metrics.md iterate this table."""

from twinlog.cluster.metrics.ha_table import HA
from twinlog.cluster.metrics.process_table import AUDIT, NAMESRV, OWN_PROCESS
from twinlog.cluster.metrics.row import Metric
from twinlog.cluster.metrics.store_table import STORE
from twinlog.cluster.metrics.traffic_table import TRAFFIC

FAMILIES: dict[str, tuple[Metric, ...]] = {
    "Messages and clients": TRAFFIC,
    "The store": STORE,
    "Replication": HA,
    "Audits": AUDIT,
    "Name servers": NAMESRV,
    "The process": OWN_PROCESS,
}
METRICS: tuple[Metric, ...] = tuple(metric for family in FAMILIES.values() for metric in family)

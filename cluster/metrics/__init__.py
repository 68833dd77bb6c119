"""Metrics for Prometheus: a table of metrics, the snapshots that they are read from, and their text.

broker_snapshot, namesrv_snapshot   in the process's own loop: plain values, no I/O
expose                              in the thread of HTTP: text, by prometheus-client
"""

from twinlog.cluster.metrics.broker import broker_snapshot as broker_snapshot
from twinlog.cluster.metrics.broker import namesrv_snapshot as namesrv_snapshot
from twinlog.cluster.metrics.snapshot import Snapshot


def expose(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The body and its content type: OpenMetrics when `accept`, a request's Accept header, asks for it."""
    from twinlog.cluster.metrics.exposition import expose as as_text  # No start should wait for prometheus-client.

    return as_text(snapshot, accept)

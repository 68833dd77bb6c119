"""A name server's snapshot, put together in its own loop."""

import time

from twinlog.cluster.metrics.snapshot import NamesrvSnapshot, RegisteredGroup
from twinlog.cluster.namesrv.route_info import MASTER_ID
from twinlog.cluster.namesrv.service import NameServer


def namesrv_snapshot(namesrv: NameServer) -> NamesrvSnapshot:
    """Everything as it is now."""
    began, now, routes = time.perf_counter(), namesrv.controller.clock(), namesrv.routes
    groups = []
    for name, group in routes.brokers.items():
        silent = [now - live.registered_at for each in group.addresses.values() if (live := routes.live.get(each))]
        masters = int(MASTER_ID in group.addresses)
        groups.append(
            RegisteredGroup(
                cluster=group.cluster,
                group=name,
                masters=masters,
                slaves=len(group.addresses) - masters,
                silent_seconds=max(silent, default=0.0),
            )
        )
    return NamesrvSnapshot(
        groups=tuple(groups),
        topics=len(routes.queues),
        now_ms=time.time_ns() // 1_000_000,
        seconds=time.perf_counter() - began,
    )

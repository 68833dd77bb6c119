"""What the name server's handlers work on. Source: NamesrvController.java (RocketMQ 4.9.8)."""

from collections.abc import Callable, Sequence

from attrs import AttrsInstance, define, field

from cluster.namesrv.config import NamesrvConfig
from cluster.namesrv.kv_config import KVConfigManager
from cluster.namesrv.route_info import RouteInfoManager


@define(eq=False)
class NamesrvController:
    """The tables and the clock (seconds, monotonic)."""

    config: NamesrvConfig
    kv: KVConfigManager
    clock: Callable[[], float]
    configurations: Sequence[AttrsInstance]  # What request 319 shows.
    routes: RouteInfoManager = field(factory=RouteInfoManager)

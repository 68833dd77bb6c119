"""What HTTP asks of a broker and of a name server. Runs in their loop: cheap, no I/O."""

from typing import TYPE_CHECKING, Any

from twinlog.cluster.config.credentials import has_credentials
from twinlog.cluster.http.source import Source

if TYPE_CHECKING:
    from twinlog.cluster.broker.broker import Broker
    from twinlog.cluster.namesrv.service import NameServer

LOOPBACK = "127.0.0.1"


def source_of_broker(broker: "Broker") -> Source:
    """Made in the broker's loop."""
    from twinlog.cluster.broker.status import member_status

    def snapshot() -> Any:
        from twinlog.cluster.metrics import broker_snapshot

        return broker_snapshot(broker)

    return Source(
        kind="broker",
        read_node=lambda: member_status(broker).to_json(),
        read_snapshot=snapshot,
        namesrv=lambda: broker.config.name_servers,
        guards_bodies=broker.acl is not None or has_credentials(),
    )


def source_of_namesrv(namesrv: "NameServer") -> Source:
    """Made in the name server's loop."""

    def node() -> dict[str, Any]:
        return {
            "schema": 1,
            "name": "namesrv",
            "role": "namesrv",
            "state": "serving",
            "brokers": len(namesrv.routes.brokers),
        }

    def snapshot() -> Any:
        from twinlog.cluster.metrics import namesrv_snapshot

        return namesrv_snapshot(namesrv)

    source = Source(
        kind="namesrv",
        read_node=node,
        read_snapshot=snapshot,
        namesrv=lambda: (f"{host}:{source.port}",),
        guards_bodies=has_credentials(),
    )
    bound = namesrv.server_config.bind_address
    host = LOOPBACK if bound in ("", "0.0.0.0", "::") else bound
    return source

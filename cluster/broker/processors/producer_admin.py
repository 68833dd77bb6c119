"""328: all producers of a broker. Source: AdminBrokerProcessor.getAllProducerInfo, ProducerManager.java (RocketMQ 4.9.7)."""

from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.headers.broker_admin import GetAllProducerInfo
from twinlog.cluster.remoting.server import Reply, Request


def get_all_producer_info(broker: BrokerParts, header: GetAllProducerInfo, request: Request) -> Reply:
    """By group: who is connected, and when they were heard of last, ms."""
    now, now_ms = broker.producers.now(), broker.now_ms()
    groups = {
        group: [
            {
                "clientId": client.client_id,
                "language": client.language,
                "lastUpdateTimestamp": now_ms - round((now - client.last_seen) * 1000),
                "remoteIP": f"/{client.connection.remote_address}",  # As Java writes a socket's address.
                "version": client.version,
            }
            for client in clients.values()
        ]
        for group, clients in broker.producers.groups.items()
    }
    return Reply(ext=None, body=fastjson.dumps({"data": groups}))


HANDLERS = (get_all_producer_info,)

"""Which handler serves which request code, on each of the two ports.

The fast port lacks pulls, so that consumers cannot hold up what it is for. Source: BrokerController.registerProcessor.
"""

from collections.abc import Mapping

from twinlog.cluster.broker.processors import (
    acl,
    client_forward,
    clients,
    config,
    consumer_admin,
    digests,
    offset,
    pull,
    query,
    reply,
    reset_offset,
    roles,
    runtime,
    send_back,
    subscription_admin,
    topic_admin,
    transactions,
)
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.request import Handler, dispatch_table

_BOTH_PORTS = (
    acl.HANDLERS,
    config.HANDLERS,
    client_forward.HANDLERS,
    clients.HANDLERS,
    consumer_admin.HANDLERS,
    digests.HANDLERS,
    transactions.HANDLERS,
    offset.HANDLERS,
    query.HANDLERS,
    reply.HANDLERS,
    reset_offset.HANDLERS,
    roles.HANDLERS,
    runtime.HANDLERS,
    send_back.HANDLERS,
    subscription_admin.HANDLERS,
    topic_admin.HANDLERS,
)


def main_port_table(broker: BrokerParts) -> Mapping[int, Handler]:
    return dispatch_table(broker, *_BOTH_PORTS, pull.HANDLERS)


def fast_port_table(broker: BrokerParts) -> Mapping[int, Handler]:
    return dispatch_table(broker, *_BOTH_PORTS)

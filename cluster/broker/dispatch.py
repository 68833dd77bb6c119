"""Which handler serves which request code, on each of the two ports.

The fast port lacks pulls, so that consumers cannot hold up what it is for. Source: BrokerController.registerProcessor.
"""

from collections.abc import Mapping

from twinlog.cluster.broker.processors import (
    acl,
    broker_config,
    cleaning,
    client_forward,
    client_manage,
    consumer_admin,
    digests,
    end_transaction,
    half_message,
    lock,
    offset,
    pull,
    query,
    queue_view,
    reply,
    reset_offset,
    roles,
    runtime,
    send_back,
    statistics,
    subscription_admin,
    topic_admin,
)
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.request import Handler, dispatch_table

_BOTH_PORTS = (
    acl.HANDLERS,
    broker_config.HANDLERS,
    cleaning.HANDLERS,
    client_forward.HANDLERS,
    client_manage.HANDLERS,
    consumer_admin.HANDLERS,
    digests.HANDLERS,
    end_transaction.HANDLERS,
    half_message.HANDLERS,
    lock.HANDLERS,
    offset.HANDLERS,
    query.HANDLERS,
    queue_view.HANDLERS,
    reply.HANDLERS,
    reset_offset.HANDLERS,
    roles.HANDLERS,
    runtime.HANDLERS,
    send_back.HANDLERS,
    statistics.HANDLERS,
    subscription_admin.HANDLERS,
    topic_admin.HANDLERS,
)


def main_port_table(broker: BrokerParts) -> Mapping[int, Handler]:
    return dispatch_table(broker, *_BOTH_PORTS, pull.HANDLERS)


def fast_port_table(broker: BrokerParts) -> Mapping[int, Handler]:
    return dispatch_table(broker, *_BOTH_PORTS)

"""37: a producer ends a transaction. Source: EndTransactionProcessor.java (RocketMQ 4.9.8)."""

from cluster.broker.parts import BrokerParts
from cluster.remoting.codes import ResponseCode
from cluster.remoting.errors import RequestError
from cluster.remoting.headers import EndTransaction
from cluster.remoting.server import Reply, Request


def end_transaction(broker: BrokerParts, header: EndTransaction, request: Request) -> Reply:
    """Half messages are refused when they are sent, so there is none to end."""
    if broker.is_slave:
        raise RequestError(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave cannot end transactions")
    raise RequestError(ResponseCode.SYSTEM_ERROR, "transactions are not supported by this broker yet")


HANDLERS = (end_transaction,)

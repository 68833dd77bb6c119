"""A RocketMQ client on trio: producers and consumers, for twinlog and for RocketMQ 4.9.

    from twinlog.cluster.client import Client, OutgoingMessage, PushConsumer

Names are loaded when they are first used, so that a command that needs one of them does not pay for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinlog.cluster.client.answers import SendStatus
    from twinlog.cluster.client.batch import Batch
    from twinlog.cluster.client.client import Client
    from twinlog.cluster.client.outgoing import OutgoingMessage, split_batch
    from twinlog.cluster.client.process_queue import FlowLimits
    from twinlog.cluster.client.producer import Producer
    from twinlog.cluster.client.pull_consumer import PullConsumer
    from twinlog.cluster.client.push_consumer import PushConsumer
    from twinlog.cluster.client.received import ReceivedMessage
    from twinlog.cluster.client.request_reply import Reply, Requester, reply
    from twinlog.cluster.client.route import MessageQueue
    from twinlog.cluster.client.routes import NoRouteError
    from twinlog.cluster.client.selectors import by_key
    from twinlog.cluster.client.sending import SendResult
    from twinlog.cluster.client.start import From, FromTime
    from twinlog.cluster.client.subscription import Sql
    from twinlog.cluster.client.transaction import Decision, HalfMessageError, Transaction, TransactionProducer

_HOMES = {
    "Batch": "batch",
    "Client": "client",
    "Decision": "transaction",
    "FlowLimits": "process_queue",
    "From": "start",
    "FromTime": "start",
    "HalfMessageError": "transaction",
    "MessageQueue": "route",
    "NoRouteError": "routes",
    "OutgoingMessage": "outgoing",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "PushConsumer": "push_consumer",
    "ReceivedMessage": "received",
    "Reply": "request_reply",
    "Requester": "request_reply",
    "SendResult": "sending",
    "SendStatus": "answers",
    "Sql": "subscription",
    "Transaction": "transaction",
    "TransactionProducer": "transaction",
    "by_key": "selectors",
    "reply": "request_reply",
    "split_batch": "outgoing",
}

__all__ = [
    "Batch",
    "Client",
    "Decision",
    "FlowLimits",
    "From",
    "FromTime",
    "HalfMessageError",
    "MessageQueue",
    "NoRouteError",
    "OutgoingMessage",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "Reply",
    "Requester",
    "SendResult",
    "SendStatus",
    "Sql",
    "Transaction",
    "TransactionProducer",
    "by_key",
    "reply",
    "split_batch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""RocketMQ client on trio: producers, consumers and administration, for twinlog and for RocketMQ 4.9. Public API.

from twinlog.client import Client, OutgoingMessage, PushConsumer
"""

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.batch import Batch
from twinlog.cluster.client.consume.process_queue import FlowLimits
from twinlog.cluster.client.consume.pull_consumer import PullConsumer
from twinlog.cluster.client.consume.push_consumer import PushConsumer
from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage, split_batch
from twinlog.cluster.client.producer import Producer, SendResult, by_key
from twinlog.cluster.client.request_reply import ReplyMessage, Requester, reply
from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.client.subscription import From, FromTime, Sql
from twinlog.cluster.client.transaction import Decision, HalfMessageError, Transaction, TransactionProducer
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.route import MessageQueue

__all__ = [
    "Admin",
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
    "RemotingError",
    "ReplyMessage",
    "RequestError",
    "Requester",
    "SendResult",
    "SendStatus",
    "Sql",
    "Transaction",
    "TransactionProducer",
    "by_key",
    "open_admin",
    "reply",
    "split_batch",
]

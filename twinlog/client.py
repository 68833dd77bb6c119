"""RocketMQ client on trio and asyncio: producers, consumers and administration, for twinlog and RocketMQ 4.9. Public API.

    async with Client("127.0.0.1:9876") as client:
        await client.producer("greeters").send(OutgoingMessage(topic="Greetings", body=b"hello"))
        async with PushConsumer(client, "readers", {"Greetings": "*"}, start=From.FIRST) as consumer:
            async for batch in consumer:
                for message in batch:
                    print(message.body)

Begin with Client, in scripts and threads with SyncClient. `Client.producer` makes a Producer; PushConsumer, PullConsumer,
TransactionProducer and Requester take a Client. `open_admin` gives the operations of the command line. What fails at a broker or
name server raises a RemotingError, what a person has to decide a UserError (administration), a wrong argument a ValueError.
"""

from typing import TYPE_CHECKING, Any

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
from twinlog.cluster.client.sync.client import SyncClient, SyncProducer, SyncRequester, SyncTransactionProducer
from twinlog.cluster.client.sync.consumers import SyncBatch, SyncPullConsumer, SyncPushConsumer
from twinlog.cluster.client.transaction import Decision, HalfMessageError, Transaction, TransactionProducer
from twinlog.cluster.remoting.errors import (
    ClientClosedError,
    MemberAuthError,
    RemotingConnectError,
    RemotingError,
    RemotingProtocolError,
    RemotingTimeoutError,
    RequestError,
    TlsFilesError,
)
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.cluster.remoting.signing import Credentials, make_signer
from twinlog.cluster.user_errors import UserError

if TYPE_CHECKING:
    from twinlog.cluster.admin.admin import Admin, open_admin

__all__ = [
    "Admin",
    "Batch",
    "Client",
    "ClientClosedError",
    "Credentials",
    "Decision",
    "FlowLimits",
    "From",
    "FromTime",
    "HalfMessageError",
    "MemberAuthError",
    "MessageQueue",
    "NoRouteError",
    "OutgoingMessage",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "RemotingConnectError",
    "RemotingError",
    "RemotingProtocolError",
    "RemotingTimeoutError",
    "ReplyMessage",
    "RequestError",
    "Requester",
    "SendResult",
    "SendStatus",
    "Sql",
    "SyncBatch",
    "SyncClient",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
    "SyncRequester",
    "SyncTransactionProducer",
    "TlsFilesError",
    "Transaction",
    "TransactionProducer",
    "UserError",
    "by_key",
    "make_signer",
    "open_admin",
    "reply",
    "split_batch",
]


if not TYPE_CHECKING:  # Type checkers would take any other name for one that is there.

    def __getattr__(name: str) -> Any:
        """Administration is imported at its first use: most applications only send and receive."""
        if name not in ("Admin", "open_admin"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from twinlog.cluster.admin import admin

        return getattr(admin, name)

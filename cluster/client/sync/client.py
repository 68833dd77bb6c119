"""Blocking client, producers and requests: see the asynchronous classes.

with SyncClient("127.0.0.1:9876") as client:
    client.producer("greeters").send(OutgoingMessage(topic="Greetings", body=b"hello"))
"""

import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from twinlog.cluster.client.client import Client, instance_name
from twinlog.cluster.client.messages import COMPRESS_FROM, OutgoingMessage, ReceivedMessage
from twinlog.cluster.client.producer import Producer, SendResult
from twinlog.cluster.client.request_reply import Requester, reply
from twinlog.cluster.client.sync.calls import (
    NOT_ENTERED,
    Portal,
    ServiceWrapper,
    Wrapper,
    block,
    blocking,
    running_loop,
)
from twinlog.cluster.client.sync.threads import Threads
from twinlog.cluster.client.transaction import Decision, TransactionProducer
from twinlog.cluster.remoting.client import Connect, connect_tcp
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import ClientClosedError

if TYPE_CHECKING:
    from twinlog.cluster.client.sync.admin import SyncAdmin


class SyncProducer(Wrapper[Producer]):
    """Producer for threads: several may send with it at once. Make it with `SyncClient.producer`."""

    queues = blocking(Producer.queues)
    send = blocking(Producer.send)
    send_batch = blocking(Producer.send_batch)
    send_oneway = blocking(Producer.send_oneway)
    send_all = blocking(Producer.send_all)

    def reply(self, question: ReceivedMessage, body: bytes, **fields: str) -> SendResult:
        """Reply to a request message; `fields` are properties of your own. Raises as the function reply()."""
        return self.portal.call(partial(reply, self.asynchronous, question, body, **fields))


class SyncClient(ServiceWrapper[Client]):
    """Client for scripts and threads, with an asyncio event loop in a thread of its own. Use it in `with`.

    Any number of threads may use it at once, also one in which an event loop runs, as in Jupyter: that loop waits meanwhile.
    Ctrl-C ends a call at once. Parameters are those of Client.
    """

    def __init__(
        self,
        namesrv: str | Iterable[str],
        *,
        timeout_ms: int = 3000,
        instance: str | None = None,
        sign: Callable[[RemotingCommand], None] | None = None,
        tls: ssl.SSLContext | None = None,
        connect: Connect = connect_tcp,
    ) -> None:
        super().__init__()
        self._arguments = partial(
            Client,
            namesrv,
            timeout_ms=timeout_ms,
            instance=instance or instance_name(),
            sign=sign,
            tls=tls,
            connect=connect,
        )
        self._loop: AbstractContextManager[Portal] | None = None
        self._root: Portal | None = None
        self._threads: Threads | None = None

    def _make(self) -> Client:
        return self._arguments()

    def _around(self) -> Portal:
        if self._root is None:
            raise ClientClosedError(NOT_ENTERED)
        return self._root

    def _on_interrupt(self) -> None:
        self.threads.abandon()

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("this SyncClient was started before, and cannot be started again: make another one")
        self._loop = running_loop()
        self._root = self._loop.__enter__()
        self._threads = Threads(self._root)
        try:
            return super().__enter__()
        except BaseException as error:
            self._loop.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._root is not None
        assert self._threads is not None
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._threads.close()
            self._loop.__exit__(kind, error, trace)

    @property
    def root(self) -> Portal:
        """Internal: the way into the loop until it ends, also after the client in it."""
        return self._around()

    @property
    def threads(self) -> Threads:
        """Internal: threads for handlers and for checks of transactions."""
        assert self._threads is not None
        return self._threads

    @property
    def client_id(self) -> str:
        """The id of this client at the brokers."""
        return self.asynchronous.client_id

    def producer(
        self,
        group: str,
        *,
        tries_max: int = 3,
        compress_from: int | None = COMPRESS_FROM,
        retry_unsafe: bool = False,
    ) -> SyncProducer:
        """Make a producer of this group. The next heartbeat registers the group."""
        make = partial(
            self.asynchronous.producer,
            group,
            tries_max=tries_max,
            compress_from=compress_from,
            retry_unsafe=retry_unsafe,
        )
        return SyncProducer.around(self.portal.make(make), self.portal)

    @property
    def admin(self) -> "SyncAdmin":
        """The operations of the command line, over this client's connections."""
        from twinlog.cluster.admin.admin import Admin  # Most applications only send and receive.
        from twinlog.cluster.client.sync.admin import SyncAdmin

        return SyncAdmin.around(Admin(self.asynchronous.api), self.portal)


class SyncTransactionProducer(Wrapper[TransactionProducer]):
    """TransactionProducer for threads. `check` is called in a thread."""

    def __init__(self, client: SyncClient, group: str, check: Callable[[ReceivedMessage], Decision]) -> None:
        super().__init__()

        async def check_in_thread(message: ReceivedMessage) -> Decision:
            return await client.threads.run(partial(check, message))

        self._portal = client.portal
        self._inside = client.portal.make(partial(TransactionProducer, client.asynchronous, group, check_in_thread))

    begin = block(TransactionProducer.begin)

    def send(
        self, message: OutgoingMessage, local: Callable[[SendResult], Decision | None]
    ) -> tuple[SendResult, Decision]:
        """Send a message and run `local` as its transaction; a return value of None commits."""
        with self.begin(message) as transaction:
            transaction.decision = local(transaction.result) or Decision.COMMIT
        return transaction.result, transaction.decision


class SyncRequester(Wrapper[Requester]):
    """Requester for threads."""

    def __init__(self, client: SyncClient, group: str) -> None:
        super().__init__()
        self._portal = client.portal
        self._inside = client.portal.make(partial(Requester, client.asynchronous, group))

    request = blocking(Requester.request)

"""Operations of administration from code without a loop, or in one that must not be touched: they run in a thread with a loop of
its own.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Self, TypeVar

from attrs import define, field

from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage
from twinlog.cluster.client.producer import Producer, SendResult

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from twinlog.cluster.admin.admin import Admin

T = TypeVar("T")
QUEUES = 4
SEND_MS = 10_000  # A master waits for its slave for three seconds.
_numbers = count(1)


def fresh_name(words: str = "test") -> str:
    """A name for a topic or a group that this process has not given before; letters that may not be in one are replaced."""
    allowed = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in words)
    return f"{allowed[:80]}-{next(_numbers)}"


@define(eq=False, kw_only=True)
class Servers:
    """The calls that a single server and a cluster have in common. All methods block, and none uses a loop of the caller's."""

    namesrv: str
    _resources: ExitStack = field(factory=ExitStack, init=False, repr=False)
    _portal: "BlockingPortal | None" = field(default=None, init=False, repr=False)
    _admin: "Admin | None" = field(default=None, init=False, repr=False)

    def call(self, operation: "Callable[[Admin], Awaitable[T]]") -> T:
        """Carry out any operation of `twinlog.client.Admin`: `rocketmq.call(lambda admin: admin.list_members())`."""
        portal = self.portal
        if self._admin is None:
            from twinlog.cluster.admin.admin import open_admin

            opened = portal.wrap_async_context_manager(open_admin((self.namesrv,)))
            self._admin = self._resources.enter_context(opened)
        return portal.call(operation, self._admin)

    @property
    def portal(self) -> "BlockingPortal":
        """The way into the thread with the loop, which is started at its first use."""
        if self._portal is None:
            from anyio.from_thread import start_blocking_portal

            self._portal = self._resources.enter_context(start_blocking_portal("asyncio", name="twinlog.testing"))
        return self._portal

    def create_topic(self, name: str, *, queues: int = QUEUES) -> str:
        """Create a topic on all masters; return its name. Raises TopicExistsError."""

        async def create(admin: "Admin") -> None:
            wanted = TopicConfig(name, read_queues=queues, write_queues=queues)
            await admin.topics.apply(await admin.topics.prepare_create(wanted, (), None))

        self.call(create)
        return name

    def fresh_topic(self, words: str = "test", *, queues: int = QUEUES) -> str:
        """Create a topic that no test has used before; return its name, which begins with `words`."""
        return self.create_topic(fresh_name(words), queues=queues)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises NoTopicError. One that is created again under its name continues its offsets."""

        async def delete(admin: "Admin") -> None:
            await admin.topics.delete(await admin.topics.prepare_delete(name))

        self.call(delete)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: str = "",
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = SEND_MS,
    ) -> SendResult:
        """Send one message. Its status tells whether a slave has it, too. Raises RemotingError."""
        message = OutgoingMessage(topic=topic, body=body, tags=tags, keys=keys, properties=dict(properties or {}))
        return self.call(lambda admin: Producer(admin.api).send(message, timeout_ms=timeout_ms))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages that the topic has now, of each queue oldest first. No consumer group sees this. Raises RemotingError."""
        found: list[ReceivedMessage] = []

        def deliver(message: ReceivedMessage) -> bool:
            found.append(message)
            return True

        from twinlog.cluster.client.subscription import From

        self.call(lambda admin: admin.consume(topic, deliver, start=From.FIRST))
        return found

    def close(self) -> None:
        """End everything."""
        self._admin = self._portal = None
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

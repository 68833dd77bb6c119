"""The real Java client asking: whole queues, single messages by key, id and time; its transactional producer; mqadmin."""

from typing import NamedTuple

from tests.support.clients.java_client import Consumed, JavaClient, Sent


class QueueContent(NamedTuple):
    """A whole queue, from its first message to its last."""

    min_offset: int
    max_offset: int
    messages: list[Consumed]


class Reader:
    """A DefaultMQPullConsumer that commits nothing, so that reading leaves no trace."""

    def __init__(self, client: JavaClient, namesrv: str, broker_name: str, *, group: str = "reader") -> None:
        self._client, self._broker = client, broker_name
        self._handle = client.new("Reader", {"group": group, "namesrv": namesrv})

    def queue(self, topic: str, queue_id: int) -> QueueContent:
        """Pull everything that a queue holds. Raises JavaError where a pull between its two ends finds nothing."""
        found = self._client.call(self._handle, "queue", **self._name(topic, queue_id))
        return QueueContent(found["min"], found["max"], [Consumed(*row) for row in found["rows"]])

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset that the broker names for a time."""
        options = {**self._name(topic, queue_id), "timestamp": str(timestamp_ms)}
        offset: int = self._client.call(self._handle, "time", **options)
        return offset

    def by_key(self, topic: str, key: str, *, most: int = 64) -> list[Consumed]:
        """Return the messages of the topic with this key, as far as the broker finds them."""
        rows = self._client.call(self._handle, "key", topic=topic, key=key, most=str(most))
        return [Consumed(*row) for row in rows]

    def by_id(self, topic: str, msg_id: str) -> Consumed:
        """Return a message by its unique id, or by its offset id. Raises JavaError when the broker has none."""
        return Consumed(*self._client.call(self._handle, "id", topic=topic, id=msg_id))

    def shutdown(self) -> None:
        self._client.call(self._handle, "shutdown")

    def _name(self, topic: str, queue_id: int) -> dict[str, str]:
        return {"topic": topic, "broker": self._broker, "queue_id": str(queue_id)}


class TransactionProducer:
    """A TransactionMQProducer for one topic; see TransactionSender.java."""

    def __init__(self, client: JavaClient, group: str, namesrv: str, topic: str) -> None:
        self._client, self._topic = client, topic
        self._handle = client.new("TransactionSender", {"group": group, "namesrv": namesrv, "topic": topic})

    def send(self, count: int, outcomes: list[str], *, first: int, seed: str, checked: str, keys: str) -> list[Sent]:
        """Send half messages; number i ends as outcomes[i % len] at once: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.

        `checked` is what a broker learns that asks later about the UNKNOW ones; about the others it hears the same again.
        """
        options = {
            "topic": self._topic,
            "count": str(count),
            "first": str(first),
            "seed": seed,
            "body_size": "200",
            "outcomes": ",".join(outcomes),
            "checked": checked,
            "keys": keys,
            "tags": "transaction",
        }
        return [Sent(*row) for row in self._client.call(self._handle, "send", **options)]

    def checks(self) -> list[str]:
        """Return the transaction ids (unique message ids) that brokers have asked about so far."""
        ids: list[str] = self._client.call(self._handle, "checks")
        return ids

    def shutdown(self) -> None:
        self._client.call(self._handle, "shutdown")


class Tool:
    """mqadmin, in a JVM that is up already."""

    def __init__(self, client: JavaClient, namesrv: str) -> None:
        self._client = client
        self._handle = client.new("Tool", {"namesrv": namesrv})

    def run(self, *arguments: str) -> str:
        """Run a command, as `mqadmin ARGUMENTS` does; returns what it prints. No argument may hold a blank."""
        printed: str = self._client.call(self._handle, "run", arguments=" ".join(arguments))
        return printed

    def both(self, *arguments: str) -> tuple[str, str]:
        """As run(); what it prints to stdout, and to stderr."""
        printed: dict[str, str] = self._client.call(self._handle, "both", arguments=" ".join(arguments))
        return printed["out"], printed["err"]

    def commands(self) -> dict[str, str]:
        """Every sub-command that this release has, with its description."""
        commands: dict[str, str] = self._client.call(self._handle, "commands")
        return commands

    def codes(self) -> dict[str, int]:
        """Every request code that this release defines, by name."""
        return {name: int(code) for name, code in self._client.call(self._handle, "codes").items()}

"""The two clusters that mqadmin is shown, RocketMQ's and twinlog's: name server, master and slave, with the same in them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field

from tests.support.clients.java_client import Consumer, JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.waiting import at_once, wait_for

MESSAGES = 5
RULES = """globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""


@define(eq=False)
class Cluster:
    """One of them, with what is connected to it."""

    root: Path
    namesrv: str
    master: BrokerProcess
    slave: BrokerProcess
    tool: Tool
    consumer: str = ""  # Its client id.
    offset_id: str = ""  # Of the first message; unique_id is the producer's own name for it.
    unique_id: str = ""
    is_ours: bool = field(init=False)

    @is_ours.default
    def _is_ours(self) -> bool:
        return isinstance(self.master, twinlog.Broker)

    @property
    def out(self) -> Path:
        """Where commands export to."""
        return self.root / "out"

    def words(self) -> dict[str, str]:
        """What rows may name."""
        return {
            "broker": self.master.address,
            "slave": self.slave.address,
            "namesrv": self.namesrv,
            "consumer": self.consumer,
            "offset_id": self.offset_id,
            "missing_id": self.offset_id[:16] + f"{1 << 40:016X}",
            "unique_id": self.unique_id,
            "out": str(self.out),
            "root": str(self.root),
        }

    def mqadmin(self, command: str, arguments: str) -> tuple[str, str]:
        """What it prints to stdout, and to stderr."""
        return self.tool.both(command, "-n", self.namesrv, *arguments.format(**self.words()).split())


@contextmanager
def both_clusters(root: Path, client: JavaClient) -> Iterator[tuple[Cluster, Cluster]]:
    """RocketMQ's and ours."""
    with ExitStack() as stack:
        members: list[tuple[str, BrokerProcess, BrokerProcess]] = []
        for name, kind in (("real", rocketmq), ("ours", twinlog)):
            namesrv = stack.enter_context(kind.NameServer(root / name / "namesrv")).address  # type: ignore[attr-defined]
            master, slave = (
                kind.Broker(root / name / role, namesrv, role=role, settings=with_rules(root / name / role))  # type: ignore[attr-defined]
                for role in ("ASYNC_MASTER", "SLAVE")
            )
            members.append((namesrv, master, slave))
            for member in (master, slave):
                stack.callback(member.__exit__, None, None, None)
        at_once(master.start for _, master, _ in members)
        at_once(slave.start for _, _, slave in members)
        clusters = [
            Cluster(root / name, *each, Tool(client, each[0]))
            for name, each in zip(("real", "ours"), members, strict=True)
        ]
        consumers = [fill(cluster, client) for cluster in clusters]
        for cluster, consumer in zip(clusters, consumers, strict=True):  # Each commits its offsets every 5 s.
            wait_consumed(cluster, consumer)
        yield clusters[0], clusters[1]


def with_rules(home: Path) -> dict[str, str]:
    """Access is controlled, so that there are rules to change; from this machine all may do everything."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(RULES)
    return TEST_SETTINGS | {"aclEnable": "true", "rocketmqHome": str(home)}


def fill(cluster: Cluster, client: JavaClient) -> Consumer:
    """Topics, messages, and a producer and a consumer that stay. Returns the consumer."""
    cluster.out.mkdir(parents=True)
    create_topic(cluster.master.address, "Orders", queues=2)
    create_topic(cluster.master.address, "Single", queues=1)
    create_topic(
        cluster.master.address, "%RETRY%CG", queues=1
    )  # Else a consumer finds it half a minute after its start.
    producer = client.producer("PG", cluster.namesrv)
    sent = producer.send("Single", MESSAGES, keys="order-{i}", tags=["TagA", "TagB"], body_size=16)
    assert all(each.ok for each in sent), sent
    cluster.offset_id, cluster.unique_id = sent[0].offset_msg_id or "", sent[0].msg_id
    return client.consumer("CG", cluster.namesrv, "Single")


def wait_consumed(cluster: Cluster, consumer: Consumer) -> None:
    """Until all messages are, and the broker knows."""
    assert len(consumer.consumed(MESSAGES)) == MESSAGES
    wait_for(lambda: "Diff Total: 0" in cluster.mqadmin("consumerProgress", "-g CG")[0], "what was read is committed")
    connections, _ = cluster.mqadmin("consumerConnection", "-g CG")
    cluster.consumer = next(word for word in connections.split() if "@" in word and "instance-" in word)


def assert_all_codes_are_known(tool: Tool) -> None:
    from twinlog.cluster.remoting.codes import RequestCode
    from twinlog.cluster.remoting.dispatch import NOT_SERVED

    codes = tool.codes()
    assert len(codes) > 80
    unknown = {name: code for name, code in codes.items() if code not in {*map(int, RequestCode), *NOT_SERVED}}
    assert not unknown

"""What a test needs to know of a name server or broker, whether it is the real RocketMQ's or ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.clients.remoting import is_registered
from tests.support.process_group.ports import HOST, free_broker_port, free_port
from tests.support.process_group.process import Process, answers

# Small files, so that a few hundred messages cross from one to the next; patience, because two cores run five JVMs.
TEST_SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "6000",
    "waitTimeMillsInSendQueue": "5000",
    "osPageCacheBusyTimeOutMills": "5000",
}
# RocketMQ's slave waits as long before its first report, and a master sends nothing before: 5 s, as it comes.
QUICK_SLAVE = {"haSendHeartbeatInterval": "300"}


class _Server(Process):
    """Subclasses know how to start one."""

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}


class NameServerProcess(_Server):
    """A name server on a free port."""

    def __init__(self, name: str, root: Path, *, port: int | None = None) -> None:
        self.root = root
        self.port = port or free_port()
        self.address = f"{HOST}:{self.port}"
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(name, self.command(), log=root / "stdout.log", environment=self.environment())

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: answers(self.port), f"an answer on port {self.port}")


class BrokerProcess(_Server):
    """A broker on free ports, registered at a name server. Real and ours take the same broker.conf.

    `role` is RocketMQ's brokerRole. `settings` are further keys of broker.conf; they win over everything else.
    """

    def __init__(
        self,
        root: Path,
        namesrv: str,
        *,
        role: str = "ASYNC_MASTER",
        broker_id: int | None = None,
        broker_name: str = "broker-a",
        port: int | None = None,
        settings: Mapping[str, str] = TEST_SETTINGS,
    ) -> None:
        self.root = root
        self.namesrv = namesrv
        self.port = port or free_broker_port()
        self.ha_port = self.port + 1
        self.address = f"{HOST}:{self.port}"
        self.store = root / "store"
        self.commit_log = self.store / "commitlog"
        self.conf = root / "broker.conf"
        own_id = broker_id if broker_id is not None else int(role == "SLAVE")
        self.settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": broker_name,
            "brokerId": str(own_id),
            "brokerRole": role,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": str(self.port),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.commit_log),
            "autoCreateTopicEnable": "true",
            **settings,
        }
        root.mkdir(parents=True, exist_ok=True)
        self.configure()
        name = f"{broker_name} {role}"
        super().__init__(name, self.command(), log=root / "stdout.log", environment=self.environment())

    def configure(self) -> None:
        """Write its broker.conf, for its next start."""
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def start(self) -> None:
        self.start_unregistered()
        self.wait_until(lambda: is_registered(self.namesrv, self.address), f"registration at {self.namesrv}")

    def start_unregistered(self) -> None:
        """Start one that need not serve, as it knows that something is wrong with it."""
        super().start()
        self.wait_until(lambda: answers(self.port), f"an answer on port {self.port}")

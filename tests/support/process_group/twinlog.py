"""twinlog as child processes, in the shape of rocketmq.py: single name servers and brokers, or a whole `twinlog up`.

Kill tests start single processes: `twinlog up` restarts a child that dies.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.support.process_group.member import BrokerProcess, NameServerProcess
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import PROGRAM, Process
from tests.support.process_group.up import free_port_base

BROKERS_MAX = 4


class NameServer(NameServerProcess):
    """`twinlog namesrv`."""

    def __init__(self, root: Path, *, port: int | None = None) -> None:
        super().__init__("twinlog namesrv", root, port=port)
        (root / "namesrv.conf").write_text(f"listenPort={self.port}\nkvConfigPath={root}/kvConfig.json\n")

    def command(self) -> Sequence[str]:
        return [PROGRAM, "namesrv", "-c", str(self.root / "namesrv.conf")]

    def start(self) -> None:
        super().start()
        self.wait_ready()


class Broker(BrokerProcess):
    """`twinlog broker` with a RocketMQ broker.conf."""

    def command(self) -> Sequence[str]:
        return [PROGRAM, "broker", "-c", str(self.conf), "-n", self.namesrv]

    def start(self) -> None:
        super().start()
        self.wait_ready()


class Up(Process):
    """`twinlog up`: name server, masters and slaves under one supervisor. Member k is broker-a-0, broker-a-1, ..."""

    def __init__(
        self,
        root: Path,
        *,
        masters: int = 1,
        slaves: int = 1,
        sync: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        assert masters * (1 + slaves) <= BROKERS_MAX
        self.root = root
        self.port_base = free_port_base(BROKERS_MAX)
        self.namesrv = f"{HOST}:{self.port_base}"
        self._slaves = slaves
        command = [PROGRAM, "up", "--no-dashboard", "--dir", str(root), "--port-base", str(self.port_base)]
        command += ["--masters", str(masters), "--slaves", str(slaves)]
        command += [] if sync else ["--async"]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        super().__init__("twinlog up", command, log=root / "up.log")

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: self.printed(f"ready namesrv={self.namesrv}"), "its ready line")

    def port(self, member: int) -> int:
        """Return the remoting port of a member; its fast port is 2 lower, its HA port 1 higher."""
        return self.port_base + 11 + 10 * member

    def address(self, member: int) -> str:
        return f"{HOST}:{self.port(member)}"

    def commit_log(self, member: int) -> Path:
        group, place = divmod(member, 1 + self._slaves)
        return self.root / f"broker-{'abcd'[group]}-{place}" / "commitlog"

    def member_pid(self, member: int) -> int:
        return listener_pid(self.port(member))


def listener_pid(port: int) -> int:
    """Return the pid of the process that listens on this port of loopback or of every address."""
    for connection in psutil.net_connections(kind="tcp"):
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        if listens and connection.pid:
            return connection.pid
    raise LookupError(f"no process listens on port {port}")

"""The real RocketMQ as child processes: a name server and brokers, each with a home and a Java user home of its own.

Nothing is written outside the given root: RocketMQ's defaults lie below ${user.home}, so that is pointed there too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.process_group import jars
from tests.support.process_group.member import BrokerProcess, NameServerProcess
from tests.support.process_group.process import Process

# A test's JVM lives for seconds: it is up sooner when it neither verifies nor optimizes much.
UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *UNVERIFIED)
SMALL_HEAP = ("-Xms256m", "-Xmx512m", *QUICK_START)

# RocketMQ reads ${ROCKETMQ_HOME}/conf/logback_*.xml itself and does not start without them.
LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5p %c{{0}} [%t] %m%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="FILE"/></root>
</configuration>
"""


class NameServer(NameServerProcess):
    """org.apache.rocketmq.namesrv.NamesrvStartup of the given release."""

    slow_to_stop = True

    def __init__(
        self, root: Path, *, version: str = jars.VERSION, heap: Sequence[str] = SMALL_HEAP, port: int | None = None
    ) -> None:
        self._version, self._heap = version, heap
        super().__init__("real name server", root, port=port)
        make_home(root)
        (root / "namesrv.conf").write_text(f"listenPort={self.port}\nkvConfigPath={root}/kvConfig.json\n")

    def command(self) -> Sequence[str]:
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return [*_java(self.root, self._version, self._heap), main, "-c", str(self.root / "namesrv.conf")]

    def environment(self) -> Mapping[str, str]:
        return {"ROCKETMQ_HOME": str(self.root)}


class Controller(Process):
    """org.apache.rocketmq.controller.ControllerStartup of 5.x: one of those that elect masters. `peers` names all of them."""

    slow_to_stop = True

    def __init__(
        self,
        root: Path,
        name: str,
        peers: Mapping[str, str],
        *,
        version: str = jars.VERSION_5,
        heap: Sequence[str] = SMALL_HEAP,
    ) -> None:
        make_home(root)
        self.address = peers[name]
        settings = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": ";".join(f"{each}-{address}" for each, address in peers.items()),
            "controllerDLegerSelfId": name,
            "controllerStorePath": str(root / "controller"),
        }
        conf = root / "controller.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.rocketmq.controller.ControllerStartup"
        command = [*_java(root, version, heap), main, "-c", str(conf)]
        super().__init__(
            f"controller {name}", command, log=root / "stdout.log", environment={"ROCKETMQ_HOME": str(root)}
        )


class Broker(BrokerProcess):
    """org.apache.rocketmq.broker.BrokerStartup of the given release; `options` as of a BrokerProcess."""

    slow_to_stop = True

    def __init__(
        self,
        root: Path,
        namesrv: str,
        *,
        version: str = jars.VERSION,
        heap: Sequence[str] = SMALL_HEAP,
        **options: Any,
    ) -> None:
        self._version, self._heap = version, heap
        super().__init__(root, namesrv, **options)
        make_home(root)

    def command(self) -> Sequence[str]:
        main = "org.apache.rocketmq.broker.BrokerStartup"
        return [*_java(self.root, self._version, self._heap), main, "-c", str(self.conf)]

    def environment(self) -> Mapping[str, str]:
        return {"ROCKETMQ_HOME": str(self.root)}

    def kill(self) -> None:
        """A process that dies between making a file and giving it its length leaves an empty one, with which RocketMQ starts no
        more ("length not matched message store config value, please check it manually"): a person would remove it.
        """
        super().kill()
        for folder in ("commitlog", "consumequeue"):
            for file in (self.commit_log.parent / folder).rglob("*"):
                if file.is_file() and file.stat().st_size == 0:
                    file.unlink()

    def tail(self, lines: int = 40) -> str:
        log = self.root / "server.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return "\n".join([super().tail(lines), f"--- last lines of {log}", *text.splitlines()[-lines:]])


def _java(root: Path, version: str, heap: Sequence[str]) -> list[str]:
    path = os.pathsep.join(jars.class_path(version))
    return ["java", "-server", *heap, *jars.OPEN_MODULES, f"-Duser.home={root}", "-cp", path]


def make_home(root: Path) -> None:
    """The logback files without which neither server starts, nor mqadmin runs."""
    conf = root / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml"):
        (conf / name).write_text(LOGBACK.format(log=root / "server.log", level="INFO"))

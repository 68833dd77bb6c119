"""RocketMQ's own mqadmin in a container of a network: a Java producer, and a Java consumer, among the members."""

import shutil
from pathlib import Path

from tests.docker.compose import IMAGE, NAMESRV_INSIDE, Compose
from tests.support.process_group import jars

ROCKETMQ_HOME = "/rocketmq"


def java_inside(compose: Compose, home: Path, command: str, *arguments: str) -> str:
    """What the command prints. The image has no Java: this machine's is mounted, Debian's as the image is."""
    program = Path(shutil.which("java") or "java").resolve()
    java_home = program.parents[1]
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    mounts = {str(java_home): str(java_home), str(jars.jars()): "/jars", str(home): ROCKETMQ_HOME}
    if (settings := Path("/etc/java-17-openjdk")).exists():
        mounts[str(settings)] = str(settings)
    options = ["-Xmx128m", "-Duser.home=/tmp", "-Drocketmq.client.logRoot=/tmp", "-cp", "/jars/*"]
    tool = ["org.apache.rocketmq.tools.command.MQAdminStartup", command, *arguments, "-n", NAMESRV_INSIDE]
    said: bytes = compose.daemon.containers.run(
        IMAGE,
        [*options, *tool],
        entrypoint=str(program),
        environment={"ROCKETMQ_HOME": ROCKETMQ_HOME},
        network=compose.network.name,
        volumes={source: {"bind": target, "mode": "ro"} for source, target in mounts.items()},
        user="root",
        read_only=True,
        tmpfs={"/tmp": ""},
        remove=True,
    )
    return said.decode()

"""The compose file under test: a project of its own on a real daemon, asked by Docker's SDK, docker-compose and Compose v2."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import docker
import trio
from attrs import field, frozen
from docker.models.containers import Container
from docker.models.networks import Network

ROOT = Path(__file__).parents[2]
QUICK = Path(__file__).with_name("quick.yml")
IMAGE = "twinlog:dev"
NAMESRV = "127.0.0.1:9876"  # Outside.
NAMESRV_INSIDE = "namesrv:9876"
BROKERS = ("broker-a-0", "broker-a-1", "broker-a-2")
BROKERS_B = ("broker-b-0", "broker-b-1", "broker-b-2")  # Of the profile two-groups.
SERVICES = (*BROKERS, "namesrv", "dashboard")
SPARK = ("spark-master", "spark-worker-0", "spark-worker-1")
COMPOSE_1 = "docker-compose"  # Debian's.
SECONDS_MAX = 60.0


def client() -> docker.DockerClient:
    """The daemon that DOCKER_HOST names, or this machine's."""
    return docker.from_env(timeout=60)


@frozen
class Compose:
    """The cluster of docker-compose.yml as a project of that name; its network is 198.51.100.0/25."""

    project: str
    program: str = COMPOSE_1  # Or that of Compose v2.
    variables: dict[str, str] = field(factory=dict)
    daemon: docker.DockerClient = field(factory=client)

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """Compose's stdout. Its words are in the error when it fails."""
        environment = {**os.environ, "TWINLOG_IMAGE": IMAGE, **self.variables}
        files = ("-f", str(ROOT / "docker-compose.yml"), "-f", str(QUICK))
        command = [self.program, "-p", self.project, *files, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def container(self, service: str) -> Container:
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        (found,) = self.daemon.containers.list(all=True, filters={"label": labels})
        return found

    @property
    def network(self) -> Network:
        return self.daemon.networks.get(f"{self.project}_default")

    def ip(self, service: str, network: Network | None = None) -> str:
        """The container's address in the project's network, or in another one."""
        networks = self.container(service).attrs["NetworkSettings"]["Networks"]
        found: str = networks[(network or self.network).name]["IPAddress"]
        return found

    def connect(self, service: str, network: Network, ip: str | None = None) -> None:
        """To this network, by its service's name; docker chooses the IP unless it is given."""
        network.connect(self.container(service), aliases=[service], ipv4_address=ip)

    def health(self, service: str) -> str:
        """healthy, unhealthy or starting; or what the container is when it does not run."""
        state = self.container(service).attrs["State"]
        return state["Health"]["Status"] if state["Running"] and "Health" in state else state["Status"]

    def twinlog(self, service: str, *arguments: str, status: int = 0) -> str:
        """What the command says inside of a container; it has to end with that status."""
        code, output = self.container(service).exec_run(["twinlog", *arguments], demux=True)
        assert code == status, f"{arguments}: {code}, {output}"
        return (output[0] or b"").decode()

    def shell(self, service: str, script: str) -> str:
        """The output of a script inside of a container."""
        code, output = self.container(service).exec_run(["sh", "-c", script], demux=True)
        assert code == 0, output
        return (output[0] or b"").decode()

    def signal_inside(self, service: str, name: str) -> None:
        """A signal for the process itself, not for the init above it."""
        self.shell(service, f"kill -{name} $(cat /proc/1/task/1/children)")

    def log(self, service: str) -> str:
        return self.container(service).logs(tail=30).decode(errors="replace")

    def what_is_left(self) -> dict[str, Sequence[Any]]:
        """Containers, networks and volumes of the project."""
        mine: Any = {"label": f"com.docker.compose.project={self.project}"}
        return {
            "containers": self.daemon.containers.list(all=True, filters=mine),
            "networks": self.daemon.networks.list(filters=mine),
            "volumes": self.daemon.volumes.list(filters=mine),
        }


async def until(condition: Callable[[], Any], what: str, seconds_max: float = SECONDS_MAX) -> float:
    """Wait for what containers do; how long it took. The condition runs in a thread, as all that asks Docker does."""
    began = time.monotonic()
    while not await trio.to_thread.run_sync(condition):
        assert time.monotonic() - began < seconds_max, f"not within {seconds_max} s: {what}"
        await trio.sleep(0.2)
    return time.monotonic() - began


async def until_healthy(compose: Compose, *services: str, seconds_max: float = SECONDS_MAX) -> float:
    def are_healthy() -> bool:
        return all(compose.health(service) == "healthy" for service in services)

    try:
        return await until(are_healthy, f"{', '.join(services)} healthy", seconds_max)
    except AssertionError as error:
        ill = [service for service in services if compose.health(service) != "healthy"]
        told = [f"--- {service} is {compose.health(service)}\n{compose.log(service)}" for service in ill]
        raise AssertionError("\n".join([str(error), *told])) from None

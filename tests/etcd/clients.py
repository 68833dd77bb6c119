"""Clients for the tests here, and a way to etcd that loses answers."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from attrs import define, field

from tests.support.process_group.etcd import EtcdCluster
from tests.support.process_group.ports import HOST, free_port
from twinlog.cluster.etcd.client import Etcd
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.errors import EtcdError, Refused

T = TypeVar("T")


def config_of(cluster: EtcdCluster, *, signed: tuple[str, str] | None = None, **more: Any) -> EtcdConfig:
    """For all endpoints of a cluster; `signed`: user and password."""
    if signed:
        file = Path(cluster.root, "password")
        file.write_text(f"{signed[1]}\n")
        more |= {"username": signed[0], "password_file": file}
    if cluster.tls and "ca_file" not in more:
        more["ca_file"] = cluster.tls.authority.certificate
    return EtcdConfig(**({"endpoints": tuple(cluster.endpoints)} | more))


async def refusal(config: EtcdConfig) -> str:
    """The cause for which a read is refused."""
    with pytest.raises(Refused) as raised:
        async with Etcd(config) as etcd:
            await etcd.get("a")
    assert raised.value.fix
    return raised.value.cause


async def patiently(ask: Callable[[], Awaitable[T]], seconds: float = 20) -> T:
    """Repeat a read until it works."""
    with trio.fail_after(seconds):
        while True:
            try:
                return await ask()
            except EtcdError:
                await trio.sleep(0.05)
    raise AssertionError


@define(eq=False)
class Way:
    """A port that leads to an endpoint, one request on each connection. While `loses`, no answer comes back."""

    to: str
    loses: bool = False
    late_s: float = 0.0
    requests: int = 0
    port: int = field(factory=free_port)

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def run(self, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        await trio.serve_tcp(self._carry, self.port, host=HOST, task_status=task_status)

    async def _carry(self, client: trio.SocketStream) -> None:
        host, _, port = self.to.rpartition("/")[2].rpartition(":")
        answered = trio.Event()
        async with client, await trio.open_tcp_stream(host, int(port)) as server, trio.open_nursery() as nursery:
            nursery.start_soon(self._back, server, client, answered)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for data in client:
                    self.requests += data.count(b"POST /v3/kv/")
                    await trio.sleep(self.late_s)
                    await server.send_all(data)
            if self.late_s:  # Who asked may be gone by now: a request on its way arrives all the same.
                with trio.move_on_after(5):
                    await answered.wait()
            nursery.cancel_scope.cancel()

    async def _back(self, server: trio.SocketStream, client: trio.SocketStream, answered: trio.Event) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in server:
                answered.set()
                if self.loses:
                    break  # It was carried out: the answer has come as far as here.
                await client.send_all(data)
        await client.aclose()

"""toxiproxy between two processes: connections that are slow, narrow, cut or reset, as long as a block lasts."""

import json
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from tests.support.process_group import go_programs
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process, answers

BAD_WAYS = (
    ("latency", {"latency": 100, "jitter": 50}),
    ("bandwidth", {"rate": 2}),
    ("slicer", {"average_size": 40, "size_variation": 30, "delay": 1000}),
    ("slow_close", {"delay": 500}),
    ("reset_peer", {"timeout": 100}),
    ("limit_data", {"bytes": 3000}),
)


class Toxiproxy(Process):
    """Its server, on loopback."""

    def __init__(self, root: Path) -> None:
        self.port = free_port()
        command = [str(go_programs.TOXIPROXY.program()), "-host", HOST, "-port", str(self.port)]
        super().__init__("toxiproxy", command, log=root / "toxiproxy.log")

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: answers(self.port), "its API")

    def proxy(self, name: str, listen: str, upstream: str) -> "Proxy":
        self.ask("POST", "/proxies", {"name": name, "listen": listen, "upstream": upstream, "enabled": True})
        return Proxy(self, name)

    def ask(self, method: str, path: str, body: Any = None) -> None:
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}", method=method, data=None if body is None else json.dumps(body).encode()
        )
        urllib.request.urlopen(request, timeout=10).close()


@frozen
class Proxy:
    """One way through it. Its downstream is who connects, its upstream who is connected to."""

    server: Toxiproxy
    name: str

    @contextmanager
    def toxic(self, kind: str, stream: str = "downstream", **attributes: int) -> Iterator[None]:
        """What happens to the bytes that flow to the `stream`, on all connections, until the block ends."""
        name = f"{kind}-{stream}"
        toxic = {"name": name, "type": kind, "stream": stream, "attributes": attributes}
        self.server.ask("POST", f"/proxies/{self.name}/toxics", toxic)
        try:
            yield
        finally:
            self.server.ask("DELETE", f"/proxies/{self.name}/toxics/{name}")

    @contextmanager
    def cut(self) -> Iterator[None]:
        """All connections end, and nobody can connect."""
        self.server.ask("POST", f"/proxies/{self.name}", {"enabled": False})
        try:
            yield
        finally:
            self.server.ask("POST", f"/proxies/{self.name}", {"enabled": True})


async def through_bad_ways(proxy: Proxy, more: Callable[[int], Awaitable[object]], *, messages: int = 10) -> None:
    """All that toxiproxy does, one thing after the other, in both directions; last the way is cut.

    After each, `more` waits until so many messages are through.
    """
    await more(messages)
    for kind, attributes in BAD_WAYS:
        with proxy.toxic(kind, **attributes), proxy.toxic(kind, "upstream", **attributes):
            await trio.sleep(1)
        await more(messages)
    with proxy.cut():
        await trio.sleep(0.5)
    await more(messages)

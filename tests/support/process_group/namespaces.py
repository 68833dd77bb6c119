"""Network namespaces of this machine, with an address translation between them. Only root makes them."""

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from attrs import frozen

T = TypeVar("T")
_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)


def _ip(*arguments: str, namespace: str = "") -> None:
    inside = ("-n", namespace) if namespace else ()
    subprocess.run(("ip", *inside, *arguments), check=True, capture_output=True, timeout=10)


def can_be_made() -> str:
    """Why this machine makes none; "" when it does."""
    name = f"tw{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
        try:
            _in(name, "iptables", "-t", "nat", "-S")
        finally:
            _ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


@frozen
class Namespace:
    """A namespace; `address`: its IP, `gateway`: the translation's in its network. It has no route to another network."""

    name: str
    address: str
    gateway: str

    def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that is in this namespace, as are its sockets and the processes that it starts."""
        found: list[T] = []
        failed: list[BaseException] = []

        def call() -> None:
            try:
                with open(f"/run/netns/{self.name}") as file:
                    if _libc.setns(file.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                found.append(function())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]


@contextlib.contextmanager
def translated(*names: str) -> Iterator[tuple["Namespace", Mapping[str, Namespace]]]:
    """A namespace that translates, and one for each name, each in a network of its own with the first one only."""
    own, networks = f"tw{os.getpid()}", dict[str, Namespace]()
    router = Namespace(f"{own}-router", "127.0.0.1", "")
    with contextlib.ExitStack() as stack:
        for name in (router.name, *(f"{own}-{each}" for each in names)):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "set", "lo", "up", namespace=name)
        for number, name in enumerate(names):
            there = Namespace(f"{own}-{name}", f"198.51.100.{16 * number + 2}", f"198.51.100.{16 * number + 1}")
            link = f"to-{name}"
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", there.name, namespace=router.name)
            for namespace, device, address in ((router, link, there.gateway), (there, "eth0", there.address)):
                _ip("address", "add", f"{address}/28", "dev", device, namespace=namespace.name)
                _ip("link", "set", device, "up", namespace=namespace.name)
            networks[name] = there
        _in(router.name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _in(router.name, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "to-+", "-j", "MASQUERADE")
        yield router, networks


def publish(router: Namespace, at: Namespace, port: int, to: Namespace, to_port: int) -> None:
    """Who connects from `at` to its gateway at `port` is connected to a port of `to`."""
    rule = (
        "-p",
        "tcp",
        "-d",
        at.gateway,
        "--dport",
        str(port),
        "-j",
        "DNAT",
        "--to-destination",
        f"{to.address}:{to_port}",
    )
    _in(router.name, "iptables", "-t", "nat", "-A", "PREROUTING", *rule)


def _in(namespace: str, *command: str) -> None:
    subprocess.run(("ip", "netns", "exec", namespace, *command), check=True, capture_output=True, timeout=10)

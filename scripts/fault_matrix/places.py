"""Where members run: all on loopback, or each in a network namespace of its own, 198.51.100.0/24 on a bridge between them.

Namespaces are made for one run and always deleted again; rules against packets lie in them, never in the machine's own tables.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from attrs import define, field, frozen

from tests.support.process_group.ports import free_port

BROKER_PORT = 10_911
PORTS_OF_BROKER = (-2, 0, 1, 3)  # Fast port, remoting, HA, HTTP.
CLONE_NEWNET = 0x4000_0000
_numbers = count()


@frozen
class Place:
    """A machine, or what stands for one."""

    name: str
    address: str
    prefix: tuple[str, ...] = ()  # Put before a command, it runs there.
    namespace: str = ""

    def run(self, *command: str) -> None:
        """A command of the system's, there. Raises OSError."""
        _run(*self.prefix, *command)

    def port(self, *offsets: int) -> int:
        """One that is free with those beside it; alone on a machine everybody has RocketMQ's own."""
        return BROKER_PORT if self.prefix else free_port(offsets or PORTS_OF_BROKER)


@define
class Net:
    """So many places. `cut` is one way: packets of `source` do not arrive at `sink`."""

    places: tuple[Place, ...]

    def cut(self, source: Place, sink: Place) -> None:
        raise NotImplementedError("loopback cannot be cut; this row needs namespaces")

    def mend(self) -> None:
        """All packets arrive again."""


@define
class Namespaces(Net):
    """Places with addresses of their own."""

    made: list[str] = field(factory=list)

    def cut(self, source: Place, sink: Place) -> None:
        sink.run("iptables", "-w", "-A", "INPUT", "-s", source.address, "-j", "DROP")

    def mend(self) -> None:
        for place in self.places:
            place.run("iptables", "-w", "-F", "INPUT")


@contextmanager
def loopback(count: int) -> Iterator[Net]:
    """Everybody at 127.0.0.1, with ports of his own."""
    yield Net(tuple(Place(f"h{number}", "127.0.0.1") for number in range(count)))


@contextmanager
def namespaces(count: int) -> Iterator[Namespaces]:
    """Needs root."""
    run = f"tl{os.getpid()}-{next(_numbers)}"
    net = Namespaces(())
    try:
        switch = _namespace(net, f"{run}-net")
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        net.places = tuple(_place(net, switch, run, number) for number in range(count))
        yield net
    finally:
        for name in net.made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _namespace(net: Namespaces, name: str) -> str:
    _run("ip", "netns", "add", name)
    net.made.append(name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    return name


def _place(net: Namespaces, switch: str, run: str, number: int) -> Place:
    name, address = _namespace(net, f"{run}-{number}"), f"198.51.100.{10 + number}"
    _run("ip", "-n", switch, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "-n", switch, "link", "set", f"v{number}", "master", "br0", "up")
    _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    return Place(f"h{number}", address, ("nsenter", f"--net=/run/netns/{name}"), name)


def enter_namespace(place: Place) -> None:
    """This thread's sockets are opened there from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{place.namespace}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {place.namespace}")


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

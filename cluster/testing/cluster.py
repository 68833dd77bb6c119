"""A name server, a master and its slaves for tests, each a process of its own, in a network that can be cut.

           listens at         is known to members at (by relays)      to clients at
member     P-2, P, P+1        R-2, R, R+1                             P
namesrv    N                  S                                       N
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attrs import define, field, frozen

from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.cluster.testing.calls import Servers
from twinlog.cluster.testing.ports import BROKER_OFFSETS, HOST, Reservation, reserve
from twinlog.cluster.testing.process import GoneError, ServerProcess, StartError, forget, program
from twinlog.cluster.testing.server import GROUP, IN_USE, SETTINGS, TRIES, own_directory
from twinlog.cluster.user_errors import UserError

if TYPE_CHECKING:
    from twinlog.cluster.admin.admin import Admin
    from twinlog.cluster.admin.roles import ChangeOutcome
    from twinlog.cluster.observe.members import Member
    from twinlog.cluster.testing.relay import Network, Way

NAMESRV = "namesrv"
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.05
OWNER_TRIES = 3
REPLICATING = {"slaveTimeout": "2000"}  # Less than a client waits for an answer, so that it is told.
# Members of three and more elect another master by themselves, two seconds after they have heard the last of it.
ELECTING = {"autoFailover": "members", "autoFailoverAfterMs": "2000", "haLeaseMs": "2000"}


@frozen
class _Server:
    """A process, with its ports: at which it listens, and at which other members know it."""

    process: ServerProcess
    real: Reservation
    told: Reservation
    offsets: tuple[int, ...]

    def ways(self) -> "tuple[Way, ...]":
        from twinlog.cluster.testing.relay import Way

        return tuple(Way(self.told.number + offset, self.real.number + offset) for offset in self.offsets)


@define(eq=False, kw_only=True)
class RocketMQCluster(Servers):
    """A name server, and one group of brokers: `broker-a-0` begins as the master. Members are named; roles change."""

    directory: Path
    _servers: dict[str, _Server] = field(repr=False)
    _network: "Network" = field(init=False, repr=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the brokers, running or not."""
        return tuple(name for name in self._servers if name != NAMESRV)

    @property
    def master(self) -> str:
        """The name of the member that serves as master now. Raises GoneError when there is none."""
        found = self._serving()
        if found is None:
            raise GoneError(f"no master serves now. {self._states()}")
        return found

    @property
    def slaves(self) -> tuple[str, ...]:
        """The names of the running members that are not the master."""
        master = self._serving()
        return tuple(name for name in self.members if name != master and self._servers[name].process.is_running)

    def address(self, member: str) -> str:
        """HOST:PORT of a member, for clients."""
        return self._server(member).real.address

    def log(self, member: str) -> Path:
        """The log file of a member."""
        return self._server(member).process.log

    def pid(self, member: str) -> int:
        """The process id of a member. Raises GoneError when it does not run."""
        return self._server(member).process.pid

    # ---- Faults

    def kill(self, member: str) -> None:
        """End a member as a crash does (SIGKILL): a broker, or `namesrv`."""
        self._server(member).process.kill()
        self.portal.call(self._network.shut, member)

    def stop(self, member: str) -> None:
        """Stop a member cleanly."""
        self._server(member).process.stop()
        self.portal.call(self._network.shut, member)

    def restart(self, member: str) -> None:
        """Start a member again, with its data and addresses; one that still runs is stopped before. Raises StartError.

        It serves when this returns, or is a slave that has not caught up yet: see wait_healthy().
        """
        server = self._server(member)
        if server.process.is_running:
            self.stop(member)
        self._start(server)
        server.process.wait_ready()

    def freeze(self, member: str) -> None:
        """Let a member stand still (SIGSTOP): it keeps its connections, and answers nothing, until thaw()."""
        self._server(member).process.freeze()

    def thaw(self, member: str) -> None:
        """Let a member go on."""
        self._server(member).process.thaw()

    def partition(self, *members: str) -> None:
        """Cut the network between these and all others, `namesrv` among them; clients still reach both sides. Until heal().

        A second partition replaces the first one.
        """
        for member in members:
            self._server(member)
        self.portal.call(self._network.isolate, frozenset(members))

    def heal(self) -> None:
        """Connect all again: what waited arrives."""
        self.portal.call(self._network.isolate, frozenset[str]())

    # ---- Roles

    def switchover(self, to: str | None = None) -> str:
        """Make a slave the master while both run; None: the best one. Returns its name. Raises RoleError."""
        return self._change("switchover", to)

    def failover(self, to: str | None = None) -> str:
        """Make a slave the master when the master is gone; None: the first that runs. Returns its name. Raises RoleError: it is
        refused where an acknowledged message could be lost.
        """
        running = [name for name in self.members if self._servers[name].process.is_running]
        if to is None and not running:
            raise GoneError("no member runs that could become the master")
        return self._change("failover", to or running[0])

    def _change(self, verb: Literal["switchover", "failover"], to: str | None) -> str:
        if to is not None:
            self._server(to)

        async def change(admin: "Admin") -> "ChangeOutcome":
            from twinlog.cluster.admin.roles import RoleOrder

            prepared = await admin.roles.prepare(RoleOrder(verb=verb, member=to))
            return await admin.roles.carry_out(prepared, lambda _state: None)

        self.call(change)
        return self.wait_master()

    def wait_master(self, *, other_than: str = "", timeout: float = WAIT_SECONDS) -> str:
        """Wait until a member serves as master, an elected one for example, and clients are told of it; return its name. Raises
        TimeoutError.

        `other_than`: the one that was it before.
        """
        found: list[str] = []

        def is_there() -> bool:
            serving = self._serving(besides=other_than)
            found[:] = [serving] if serving is not None and self._is_told(serving) else []
            return bool(found)

        self._wait(is_there, f"a master{f' other than {other_than}' if other_than else ''}", timeout)
        return found[0]

    def wait_healthy(self, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until all members run, one serves as master, all others have what it has, and any could take over. Raises
        TimeoutError.
        """
        self._wait(lambda: self._replicates() and self._is_settled(), "a healthy cluster", timeout)

    # ---- Start and end

    def start(self) -> None:
        """Start all, and wait until they are one group. Raises StartError."""
        from twinlog.cluster.testing.relay import Network

        network = Network(HOST, self._owner)
        self._network = self._resources.enter_context(self.portal.wrap_async_context_manager(network.running()))
        for server in self._servers.values():
            self._start(server)
        for server in self._servers.values():
            server.process.wait_ready()
        try:
            self.wait_healthy()
        except TimeoutError as error:
            logs = "\n".join(server.process.end_of_log() for server in self._servers.values())
            raise StartError(f"{error}\n{logs}") from error

    def close(self) -> None:
        """End everything, and remove the directory."""
        for server in self._servers.values():
            forget(server.process)
            server.real.close()
        super().close()
        for server in self._servers.values():
            server.told.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, server: _Server) -> None:
        try:
            self.portal.call(self._network.open, server.process.name, server.ways())
        except OSError as error:
            raise StartError(
                f"A relay of {server.process.name} cannot listen: its port {IN_USE} others: {error}"
            ) from error
        server.process.start()

    def _owner(self, port: int) -> str:
        """The member that has this local port. The kernel's list of connections may lack one while others come and go."""
        import psutil

        for _ in range(OWNER_TRIES):
            for name, server in self._servers.items():
                with suppress(GoneError, psutil.Error):
                    for each in psutil.Process(server.process.pid).net_connections("tcp4"):
                        if each.laddr.port == port:
                            return name
        return ""

    def _server(self, member: str) -> _Server:
        if member not in self._servers:
            raise ValueError(f"{member!r} is no member: expected one of {', '.join(self._servers)}")
        return self._servers[member]

    # ---- What members say of themselves

    def _look(self) -> "list[Member]":
        with suppress(RemotingError):
            return list(self.call(lambda admin: admin.list_members()).members)
        return []

    def _serving(self, besides: str = "") -> str | None:
        serving = [each for each in self._look() if (each.role, each.state) == ("master", "serving")]
        newest = sorted((each for each in serving if each.name != besides), key=lambda each: each.epoch or 0)
        return newest[-1].name if newest else None

    def _is_told(self, member: str) -> bool:
        """True if the name server sends producers there."""
        with suppress(RemotingError):
            groups = self.call(lambda admin: admin.api.cluster())
            return any(group.addresses.get(MASTER_ID) == self.address(member) for group in groups)
        return False

    def _replicates(self) -> bool:
        """True if one member serves, and all others follow it, have a record of its epochs and all its bytes."""
        members = self._look()
        masters = [each for each in members if (each.role, each.state) == ("master", "serving")]
        slaves = [each for each in members if (each.role, each.state) == ("slave", "streaming")]
        if len(masters) != 1 or len(slaves) != len(self.members) - 1:
            return False
        return all(each.epoch is not None for each in members) and all(each.lag_bytes == 0 for each in slaves)

    def _is_settled(self) -> bool:
        """True if every member's record of the group names all of them and is in force; a member alone needs none."""

        async def reasons(admin: "Admin") -> list[str]:
            from twinlog.cluster.admin.roles import unsettled

            return await unsettled(admin.api, GROUP)

        with suppress(RemotingError, UserError):
            return not self.call(reasons)
        return False

    def _states(self) -> str:
        members = self._look()
        return "Members: " + (
            "; ".join(f"{each.name} is {each.role}, {each.state}" for each in members) or "none answers"
        )

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"there was not {what} within {timeout:g} s. {self._states()}")
            time.sleep(POLL_SECONDS)


def start_cluster(
    directory: Path | str, *, slaves: int = 1, sync: bool = True, settings: Mapping[str, str] | None = None
) -> RocketMQCluster:
    """Start a name server, a master and slaves, which follow it when this returns. Use it in `with`, or call close().

    `directory`: a new directory of theirs, removed by close(). `sync`: the master acknowledges a message when a slave has it,
    too (SYNC_MASTER); with two slaves and more it is also replaced by the others when it is gone. `settings`: keys of broker.conf
    of all members. Raises StartError.
    """
    if slaves < 0:
        raise ValueError(f"slaves={slaves}: expected 0 or more")
    for attempt in range(TRIES):
        cluster = _prepared(own_directory(directory), slaves, sync, settings or {})
        try:
            cluster.start()
        except StartError as error:
            cluster.close()
            if IN_USE in str(error) and attempt < TRIES - 1:
                continue
            raise error from None
        except BaseException:
            cluster.close()
            raise
        return cluster
    raise AssertionError("unreachable")


def _prepared(directory: Path, slaves: int, sync: bool, settings: Mapping[str, str]) -> RocketMQCluster:
    real, told = reserve(), reserve()
    values = {"listenPort": str(real.number), "bindAddress": HOST, "httpEnable": "false"}
    values["kvConfigPath"] = str(directory / "kvConfig.json")
    servers = {NAMESRV: _Server(_process(directory, NAMESRV, values), real, told, (0,))}
    role = "SYNC_MASTER" if sync and slaves else "ASYNC_MASTER"
    electing = ELECTING if sync and slaves >= 2 else {}
    for number in range(slaves + 1):
        name = f"{GROUP}-{number}"
        at, known = reserve(BROKER_OFFSETS), reserve(BROKER_OFFSETS)
        values = {
            **SETTINGS,
            **REPLICATING,
            **electing,
            "brokerId": str(number),
            "brokerRole": "SLAVE" if number else role,
            "brokerIP2": HOST,
            "brokerPort2": str(known.number),
            "haPort": str(known.number + 1),
            "listenPort": str(at.number),
            "haListenPort": str(at.number + 1),
            "namesrvAddr": told.address,
            "storePathRootDir": str(directory / name),
            **settings,
        }
        servers[name] = _Server(_process(directory, name, values), at, known, BROKER_OFFSETS)
    return RocketMQCluster(namesrv=real.address, directory=directory, servers=servers)


def _process(directory: Path, name: str, values: Mapping[str, str]) -> ServerProcess:
    conf = directory / f"{name}.conf"
    conf.write_text(with_values("", dict(values)))
    kind = "namesrv" if name == NAMESRV else "broker"
    return ServerProcess(name, program(kind, "-c", str(conf), "--until-stdin-closes"), directory / f"{name}.log")

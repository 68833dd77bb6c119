"""etcd as processes: one member or more on loopback, Debian's 3.4 or the newest, with sign-in and TLS where a test asks for it.

    with EtcdCluster(tmp_path, 3) as cluster:
        cluster.endpoints          # ["http://127.0.0.1:12345", ...]
        cluster.leader().pause()   # SIGSTOP; kill(), stop(), start(), resume()

A member is ready when it knows a leader, as its own metrics say: they are told in plain HTTP on a port of their own, whatever
the clients' port demands.
"""

import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from attrs import define, field, frozen

from tests.cluster.remoting.certificates import Authority
from tests.support.process_group import go_programs
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process
from tests.support.waiting import wait_for

SOURCE = Path(__file__).with_name("etcd_server")
_OFFSETS = (0, 1, 2)  # Clients, peers, metrics.
_HEARTBEAT_MS, _ELECTION_MS = 50, 500  # Half of etcd's own: a test waits for elections.


@frozen
class Version:
    """A release, and where its server is found; `missing` says what this machine lacks for it, empty: nothing."""

    number: str
    program: Callable[[], Path] = field(eq=False, repr=False)
    needs: tuple[str, ...]

    @property
    def missing(self) -> str:
        """The programs that are not there, and what installs them."""
        lacks = [tool for tool in self.needs if shutil.which(tool) is None]
        return f"needs {', '.join(lacks)}: apt install etcd-server etcd-client golang-go" if lacks else ""


def _built() -> Path:
    """The newest one; the first call builds it, in two minutes of one core."""
    return go_programs.own(SOURCE, "etcd")


DEBIAN = Version("3.4", lambda: Path(shutil.which("etcd") or "etcd"), ("etcd", "etcdctl"))
NEWEST = Version("3.7", _built, ("go", "etcdctl"))


@frozen
class Tls:
    """Certificates of a cluster: the server's, and whether clients have to show one."""

    authority: Authority
    certificate: Path
    key: Path
    client_auth: bool = False

    @classmethod
    def make(cls, directory: Path, *, client_auth: bool = False, usages: Sequence[str] = ("server", "client")) -> Self:
        """For 127.0.0.1. Without the usage `client`, etcd's gateway cannot reach its own server where clients are checked."""
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority(directory, "etcd-authority")
        certificate, key = authority.issue("etcd", addresses=(HOST,), usages=usages)
        return cls(authority, certificate, key, client_auth)

    def flags(self) -> list[str]:
        flags = [f"--cert-file={self.certificate}", f"--key-file={self.key}"]
        if self.client_auth:
            flags += ["--client-cert-auth", f"--trusted-ca-file={self.authority.certificate}"]
        return flags


class EtcdMember(Process):
    """One server. Its directory outlives stop() and kill(); `flags` may be changed between two starts."""

    slow_to_stop: ClassVar[bool] = True  # It hands its leadership over first.

    def __init__(self, root: Path, name: str, version: Version, tls: Tls | None) -> None:
        self.root, self.version, self.tls = root, version, tls
        self.data_dir = root / name
        self.port = free_port(_OFFSETS)
        self.flags: list[str] = []
        super().__init__(name, (), log=root / f"{name}.log")

    @property
    def endpoint(self) -> str:
        """URL for clients."""
        return f"{'https' if self.tls else 'http'}://{HOST}:{self.port}"

    @property
    def peer_url(self) -> str:
        """URL for the other members."""
        return f"http://{HOST}:{self.port + 1}"

    @property
    def is_leader(self) -> bool:
        """As it says itself; a paused or dead one does not answer, and is none."""
        return self.metric("etcd_server_is_leader") == 1

    @property
    def has_leader(self) -> bool:
        """As it says itself."""
        return self.metric("etcd_server_has_leader") == 1

    def start(self) -> None:
        """Start it without waiting: without a majority it does not become ready."""
        self._command = [str(self.version.program()), f"--name={self.name}", f"--data-dir={self.data_dir}", *self.flags]
        super().start()

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.has_leader, "a leader")

    def stop(self, *, timeout_s: float = 30) -> None:
        if self.running:
            self.resume()  # A stopped process takes no SIGTERM.
        super().stop(timeout_s=timeout_s)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def metric(self, name: str) -> float | None:
        """A number out of its /metrics; None: it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port + 2}/metrics", timeout=1) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None)


@define(eq=False)
class EtcdCluster:
    """Members that elect a leader among themselves. Entering starts them and waits for the leader; leaving kills them.

    `flags` go to all members: `--auth-token-ttl=1`, `--quota-backend-bytes=...`, `--enable-grpc-gateway=false`.
    """

    root: Path
    size: int = 1
    version: Version = DEBIAN
    tls: Tls | None = None
    flags: Sequence[str] = ()
    token: str = "one"  # Part of the cluster's id: with the same one, a cluster that lost its data keeps its id.
    members: list[EtcdMember] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.members = [EtcdMember(self.root, f"etcd-{n}", self.version, self.tls) for n in range(self.size)]

    @property
    def endpoints(self) -> list[str]:
        """URLs of all members."""
        return [member.endpoint for member in self.members]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.running:
                member.kill()

    def start(self) -> None:
        """Start those that do not run, and wait until each has a leader."""
        self._configure()
        for member in self.members:
            if not member.running:
                member.start()
        for member in self.members:
            member.wait_ready()

    def kill(self) -> None:
        """Kill them all, as a power cut would; start() brings them back with their data."""
        for member in self.members:
            if member.running:
                member.kill()

    def lose_data(self, token: str = "one") -> None:
        """Kill them, remove what they stored, and start them anew: empty, at revision 1."""
        self.kill()
        for member in self.members:
            shutil.rmtree(member.data_dir, ignore_errors=True)
        self.token = token
        self.start()

    def leader(self, of: Iterable[EtcdMember] | None = None) -> EtcdMember:
        """Wait until one leads."""
        among = list(self.members if of is None else of)
        wait_for(lambda: any(each.is_leader for each in among), "a leader of etcd", timeout_s=20)
        return next(each for each in among if each.is_leader)

    def followers(self) -> list[EtcdMember]:
        leader = self.leader()
        return [each for each in self.members if each is not leader]

    def ctl(self, *arguments: str, user: str = "", standard_input: str = "") -> str:
        """What etcdctl prints; `user`: NAME:PASSWORD. Raises AssertionError with what it says when it fails."""
        command = ["etcdctl", f"--endpoints={','.join(self.endpoints)}", "--dial-timeout=3s", "--command-timeout=10s"]
        if self.tls:
            command.append(f"--cacert={self.tls.authority.certificate}")
            if self.tls.client_auth:
                certificate, key = self.tls.authority.issue("etcdctl", subject="", usages=("client",))
                command += [f"--cert={certificate}", f"--key={key}"]
        if user:
            command.append(f"--user={user}")
        done = subprocess.run(
            [*command, *arguments], input=standard_input, capture_output=True, text=True, timeout=30, env=_CTL
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def enable_auth(self, users: Mapping[str, tuple[str, str]], *, root_password: str = "root") -> None:
        """Sign-in is demanded from here on: for each user a password and a prefix that it may read and write."""
        self.ctl("user", "add", f"root:{root_password}")
        self.ctl("user", "grant-role", "root", "root")
        for name, (password, prefix) in users.items():
            self.ctl("user", "add", f"{name}:{password}")
            self.ctl("role", "add", f"of-{name}")
            self.ctl("role", "grant-permission", f"of-{name}", "--prefix=true", "readwrite", prefix)
            self.ctl("user", "grant-role", name, f"of-{name}")
        self.ctl("auth", "enable")

    def _configure(self) -> None:
        everybody = ",".join(f"{each.name}={each.peer_url}" for each in self.members)
        for member in self.members:
            member.flags = [
                f"--listen-client-urls={member.endpoint}",
                f"--advertise-client-urls={member.endpoint}",
                f"--listen-peer-urls={member.peer_url}",
                f"--initial-advertise-peer-urls={member.peer_url}",
                f"--listen-metrics-urls=http://{HOST}:{member.port + 2}",
                f"--initial-cluster={everybody}",
                f"--initial-cluster-token={self.token}",
                f"--heartbeat-interval={_HEARTBEAT_MS}",
                f"--election-timeout={_ELECTION_MS}",
                "--bcrypt-cost=4",  # Cheap passwords: a sign-in takes 0.1 s otherwise.
                "--logger=zap",
                "--log-level=warn",
                *(self.tls.flags() if self.tls else ()),
                *self.flags,
            ]


_CTL = {"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin:/usr/local/bin"}

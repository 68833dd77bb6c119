"""The plan of `twinlog up`: members, ports, directories, configuration files. Pure.

Broker k counts group by group: broker-a-0 is the first master, broker-a-1 its first slave, then broker-b-0, ...
A member keeps its name whatever its brokerId becomes; its store root is the directory of that name.

             name server   its HTTP   dashboard   etcd          broker k: remoting   fast   HA   HTTP
  default    9876          9878       9877        9879, 9880    10911+10k            -2     +1   +3
  base N     N             N+2        N+1         N+3, N+4      N+11+10k             -2     +1   +3
Each member opens its HTTP port by itself; if that is busy, it serves without HTTP and logs a warning.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.user_errors import USAGE, UserError

LOOPBACK = "127.0.0.1"
CLUSTER = "DefaultCluster"
PORT_MAX = 65535
SECRET_KEY = "haSecretFile"
# A member that is killed is started again, and serves within two seconds unless the machine is busy: then it stays master.
ELECTING = {"autoFailover": "members", "autoFailoverRestartMs": "3000"}
# A set of one may have only what is on its disk: with ASYNC_FLUSH it would not shrink that far.
WITH_ETCD = {"autoFailover": "etcd", "autoFailoverRestartMs": "3000", "flushDiskType": "SYNC_FLUSH"}


class PlanError(UserError):
    """The options cannot be satisfied; the message says why."""

    exit_status = USAGE


@frozen
class Port:
    """A port and its purpose."""

    number: int
    purpose: str


@frozen(kw_only=True)
class NamesrvPlan:
    """The name server of the plan."""

    name: str = "namesrv"
    port: int
    http_port: int
    dashboard_port: int
    directory: Path

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def listens(self) -> tuple[Port, ...]:
        return (Port(self.port, self.name),)

    def settings(self) -> dict[str, str]:
        """Return its namesrv.conf."""
        return {
            "bindAddress": LOOPBACK,
            "listenPort": str(self.port),
            "kvConfigPath": str(self.directory / "namesrv" / "kvConfig.json"),
        }


@frozen(kw_only=True)
class EtcdPlan:
    """One member of etcd, which keeps the groups' records. Its data is in the directory, as theirs is."""

    name: str = "etcd"
    port: int
    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / self.name

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def listens(self) -> tuple[Port, ...]:
        return (Port(self.port, self.name), Port(self.port + 1, "etcd's port for its members"))

    def arguments(self) -> list[str]:
        """Return its command line, without the program."""
        own = f"http://{LOOPBACK}:{self.port + 1}"
        return [
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={own}",
            f"--initial-advertise-peer-urls={own}",
            f"--initial-cluster={self.name}={own}",
            "--auto-compaction-retention=1h",
            "--logger=zap",
            "--log-level=warn",
        ]


@frozen(kw_only=True)
class BrokerPlan:
    """One broker of the plan."""

    group: str
    broker_id: int
    role: str
    port: int
    directory: Path
    namesrv: str
    elects: bool = False  # Its group may elect another master by itself.
    etcd: str = ""  # etcdEndpoints.
    core: int | None = None  # What --pin binds it to: pinning.py.

    @property
    def name(self) -> str:
        return f"{self.group}-{self.broker_id}"

    @property
    def store_root(self) -> Path:
        return self.directory / self.name

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def http_port(self) -> int:
        return self.port + 3

    @property
    def listens(self) -> tuple[Port, ...]:
        return (
            Port(self.port, self.name),
            Port(self.port - 2, f"{self.name}'s fast port"),
            Port(self.port + 1, f"{self.name}'s HA port"),
        )

    def settings(self) -> dict[str, str]:
        """Return its broker.conf, without `--set`."""
        return {
            "brokerClusterName": CLUSTER,
            "brokerName": self.group,
            "brokerId": str(self.broker_id),
            "brokerRole": self.role,
            "namesrvAddr": self.namesrv,
            "bindAddress": LOOPBACK,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "listenPort": str(self.port),
            "haListenHost": LOOPBACK,
            "haListenPort": str(self.port + 1),
            "storePathRootDir": str(self.store_root),
            **({**WITH_ETCD, "etcdEndpoints": self.etcd} if self.etcd else ELECTING if self.elects else {}),
        }


@frozen(kw_only=True)
class UpPlan:
    """Everything that `up` runs."""

    directory: Path
    namesrv: NamesrvPlan
    brokers: tuple[BrokerPlan, ...]
    etcd: EtcdPlan | None = None

    @property
    def secret_path(self) -> Path:
        """The file of the group secret, one for all members."""
        return self.directory / "group-secret"

    @property
    def members(self) -> tuple[NamesrvPlan | BrokerPlan, ...]:
        return (self.namesrv, *self.brokers)

    @property
    def listens(self) -> tuple[Port, ...]:
        """The ports of all processes but the dashboard."""
        found = tuple(port for member in self.members for port in member.listens)
        return found + (self.etcd.listens if self.etcd is not None else ())

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(broker.group for broker in self.brokers))

    def conf_path(self, member: NamesrvPlan | BrokerPlan) -> Path:
        return self.directory / "conf" / f"{member.name}.conf"

    def log_path(self, member: NamesrvPlan | BrokerPlan | EtcdPlan) -> Path:
        return self.directory / "logs" / f"{member.name}.log"


def plan_up(
    directory: Path,
    *,
    masters: int = 1,
    slaves: int = 1,
    is_async: bool = False,
    port_base: int | None = None,
    with_etcd: bool = False,
) -> UpPlan:
    """Plan a name server and `masters` groups of one master and `slaves` slaves each.

    Masters are SYNC_MASTER; with `is_async`, or when there is no slave that could acknowledge, ASYNC_MASTER. Groups of three and
    more of a SYNC_MASTER elect another master by themselves; in smaller ones a person decides, but for `with_etcd`.
    Raises PlanError when the ports do not fit, or etcd would have nothing to keep.
    """
    if with_etcd and (is_async or not slaves):
        raise PlanError(
            f"--etcd needs a slave that acknowledges: --slaves 1 or more, and no --async. {directory} may have etcd's data of an "
            "earlier start with --etcd, which has the same effect"
        )
    first, step = (10911, 9876) if port_base is None else (port_base + 11, port_base)
    namesrv = NamesrvPlan(port=step, dashboard_port=step + 1, http_port=step + 2, directory=directory)
    etcd = EtcdPlan(port=step + 3, directory=directory) if with_etcd else None
    master_role = "ASYNC_MASTER" if is_async or not slaves else "SYNC_MASTER"
    brokers = tuple(
        BrokerPlan(
            group=group_name(group),
            broker_id=broker_id,
            role="SLAVE" if broker_id else master_role,
            port=first + 10 * (group * (slaves + 1) + broker_id),
            directory=directory,
            namesrv=namesrv.address,
            elects=etcd is not None or (slaves >= 2 and not is_async),
            etcd=etcd.endpoint if etcd is not None else "",
        )
        for group in range(masters)
        for broker_id in range(slaves + 1)
    )
    if namesrv.port < 1 or (highest := brokers[-1].http_port) > PORT_MAX:
        raise PlanError(
            f"--port-base {port_base}: expected 1 to {PORT_MAX - (highest - step)} for {len(brokers)} brokers"
            if namesrv.port >= 1
            else f"--port-base {port_base}: expected 1 and above"
        )
    return UpPlan(directory=directory, namesrv=namesrv, brokers=brokers, etcd=etcd)


def group_name(number: int) -> str:
    """Return broker-a, ..., broker-z, broker-aa, ...: RocketMQ's example names, continued like columns of a spreadsheet."""
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("a") + digit) + letters
    return f"broker-{letters}"


def conf_text(
    member: NamesrvPlan | BrokerPlan, overrides: Mapping[str, str], *, secret_file: Path | None = None
) -> str:
    """Return a member's configuration file: the plan, then the keys of `--set`, which override it."""
    head = "# Written by `twinlog up` at each start: changes made here are lost. For brokers use --set KEY=VALUE instead.\n"
    settings = member.settings() | ({SECRET_KEY: str(secret_file)} if secret_file is not None else {})
    planned = {key: value for key, value in settings.items() if key not in overrides}
    text = with_values(head, planned)
    return with_values(f"{text}# From --set:\n", overrides) if overrides else text


def default_directory() -> Path:
    """Return the user's data directory, by the XDG rules."""
    base = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "twinlog"

"""`twinlog up`: starts the members of a plan, restarts them, stops them in order.

Children start before trio is imported here, so that their start and ours overlap. The name server stops last, because brokers
unregister from it. A lock file allows one supervisor for each directory.

The dashboard is a child like the members, but an optional one. Its socket is opened before anything runs and passed on: a busy
port is reported at once, an early browser waits instead of being refused, and a restarted dashboard has the same address.
"""

import fcntl
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

import click
from attrs import frozen

from twinlog.cluster.cli.common.errors import USAGE, CliError, innermost
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import WARNING, set_up_log
from twinlog.cluster.cli.run.member_process import MemberProcess, exit_text, program, tied
from twinlog.cluster.cli.run.pinning import own_cores, pinned
from twinlog.cluster.cli.run.ports import busy_ports, in_use
from twinlog.cluster.cli.run.up_plan import (
    LOOPBACK,
    SECRET_KEY,
    BrokerPlan,
    EtcdPlan,
    NamesrvPlan,
    Port,
    UpPlan,
    conf_text,
    default_directory,
    plan_up,
)
from twinlog.cluster.config.config_file import setting_of
from twinlog.cluster.config.environment import without_options
from twinlog.cluster.config.group_secret import new_secret, read_secrets, write_secrets
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import load_member
from twinlog.store.role_file import GroupMember, load_role

if TYPE_CHECKING:
    import trio

RESTART_SECONDS, RESTART_SECONDS_MAX = 0.5, 30.0
STEADY_SECONDS = 60.0  # After a child ran this long, its earlier deaths do not delay its restart.
SLOW_STOP_SECONDS = 5.0
DASHBOARD = "dashboard"
ETCD = "etcd"  # The program; Debian: etcd-server.


@click.command(
    "up",
    epilog=examples(
        "twinlog up",
        "twinlog up --masters 2 --slaves 2 --port-base 20000 --dir ./data",
        "twinlog up --set flushDiskType=SYNC_FLUSH",
        "twinlog up --etcd    a pair that stays available with one member",
        "twinlog up --masters 4 --pin    four masters on a core each",
    ),
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory.  [default: twinlog in $XDG_DATA_HOME, else ~/.local/share/twinlog]",
)
@click.option(
    "--masters",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of masters, each with a broker group of its own.",
)
@click.option(
    "--slaves", type=click.IntRange(0, 100), default=1, show_default=True, help="Number of slaves of each master."
)
@click.option("--async", "is_async", is_flag=True, help="Acknowledge messages before a slave has them.")
@click.option(
    "--port-base",
    type=int,
    metavar="N",
    help="Use port N for the name server, N+11+10k for broker k.  [default: 9876, brokers from 10911]",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a configuration key of every broker; repeatable.",
)
@click.option(
    "--etcd",
    "with_etcd",
    is_flag=True,
    help="Also start etcd, which has to be installed, and let it keep the groups' records (autoFailover=etcd).",
)
@click.option(
    "--pin",
    "pin",
    is_flag=True,
    help="Bind each broker to one core: masters to one each as far as there are some, then slaves to the next ones in turn.",
)
@click.option("--no-dashboard", is_flag=True, help="Do not start the web page.")
def up(
    directory: Path | None,
    masters: int,
    slaves: int,
    is_async: bool,
    port_base: int | None,
    overrides: tuple[str, ...],
    with_etcd: bool,
    pin: bool,
    no_dashboard: bool,
) -> None:
    """Run a name server, masters, slaves and a dashboard on this machine, each as a process of its own.

    Prints one line `ready namesrv=HOST:PORT dashboard=http://HOST:PORT` when all are registered and the slaves follow. Ctrl-C
    stops them cleanly, a second one at once; the data is kept. A member that dies is restarted. With two or more slaves a group
    elects another master by itself when its own stays away (autoFailover=members). With --etcd, and at each later start in that
    directory, so does one with a single slave, and goes on with the member that is left.
    """
    if overrides:
        from twinlog.cluster.cli.run.settings import load_broker

        load_broker(None, overrides, namesrv=None, environment={})  # Report an error once, before anything runs.
    _note_variables()
    directory = (directory or default_directory()).absolute()
    plan = plan_up(
        directory,
        masters=masters,
        slaves=slaves,
        is_async=is_async,
        port_base=port_base,
        with_etcd=with_etcd or _has_etcd(directory),
    )
    require_etcd(plan)
    if pin:
        plan = _pinned(plan)
    settings = {each.key: each.value for each in map(setting_of, overrides)}
    with _lock(plan):
        check_ports(plan)
        supervisor = Supervisor(plan, settings, with_dashboard=not no_dashboard, hands_to_etcd=with_etcd)
        try:
            supervisor.start()
            supervisor.run()
        finally:
            supervisor.kill()  # Nothing is left running, whatever ended this.


def _has_etcd(directory: Path) -> bool:
    """True if a start before had --etcd: members may depend on what is there."""
    return EtcdPlan(port=0, directory=directory).data.exists()


def require_etcd(plan: UpPlan) -> None:
    """Raise CliError where the plan has an etcd, and this machine has none."""
    if plan.etcd is None or shutil.which(ETCD) is not None:
        return
    raise CliError(
        "etcd is not installed, or not in $PATH.",
        f"--etcd starts the program `{ETCD}` with its data in {plan.etcd.data}, which an earlier start may have left.",
        "On Debian: apt install etcd-server. Or name an etcd that runs elsewhere: --set autoFailover=etcd "
        "--set etcdEndpoints=http://HOST:PORT",
        exit_code=USAGE,
    )


def _pinned(plan: UpPlan) -> UpPlan:
    if len(cores := own_cores()) < 2:
        click.echo("note: --pin does nothing here: there is one core", err=True)
    return pinned(plan, cores)


def _note_variables() -> None:
    if ignored := sorted(os.environ.keys() - without_options(os.environ).keys()):
        click.echo(f"note: `up` ignores {', '.join(ignored)}; use --set KEY=VALUE instead", err=True)


def _lock(plan: UpPlan) -> IO[str]:
    path = plan.directory / "up.lock"
    try:
        plan.directory.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise CliError(
            f"The directory {plan.directory} cannot be used.", str(error), "Choose another with --dir."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        who = file.read().strip() or "of unknown id"
        file.close()
        raise CliError(
            f"Another `twinlog up` runs on {plan.directory}.",
            f"Process {who} holds {path}.",
            "See it with: twinlog list. For a second cluster use --dir and --port-base.",
        ) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


@frozen
class UpDashboard:
    """Its process, not started yet, its socket and its URL."""

    process: MemberProcess
    listener: socket.socket
    url: str
    token_file: str


def prepare_dashboard(plan: UpPlan) -> UpDashboard | None:
    """Return the dashboard, or None after one line with the reason."""
    port = plan.namesrv.dashboard_port
    try:
        listener = socket.create_server((LOOPBACK, port))  # Closed on exec, except in the child that it is passed to.
    except OSError:
        say(f"no dashboard: {in_use([Port(port, 'dashboard')])[0]} To use another port: twinlog dashboard --listen")
        return None
    try:
        token_file = _token_file(plan)
    except OSError as error:
        say(f"the dashboard is read-only: {error}")
        token_file = ""
    arguments = ["-n", plan.namesrv.address, "--listen", f"{LOOPBACK}:{port}", "--listen-fd", str(listener.fileno())]
    arguments += ["--token-file", token_file] if token_file else []
    arguments += ["--audit", str(plan.directory / "audit")]
    log = plan.directory / "logs" / f"{DASHBOARD}.log"
    process = MemberProcess(DASHBOARD, program("dashboard", *arguments), log, pass_fds=(listener.fileno(),))
    return UpDashboard(process, listener, f"http://{LOOPBACK}:{port}", token_file)


def _token_file(plan: UpPlan) -> str:
    """Create the token at the first start, readable by its owner only."""
    path = plan.directory / "dashboard.token"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return str(path)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(16) + "\n")
    return str(path)


def secret_file(plan: UpPlan) -> Path | None:
    """The file of the group secret. It is made at the first start, unless a group has a member that `up` does not start.

    Raises SecretFileError for a file that cannot be used.
    """
    path = plan.secret_path
    if path.exists():
        read_secrets(path)
    elif others := members_elsewhere(plan):
        say(
            f"no group secret: {', '.join(others)} of this group would be refused, and must have it first. "
            f"Then: twinlog group secret new {path}, a copy for it, and start again"
        )
        return None
    else:
        write_secrets(path, (new_secret(),))
    return path


def members_elsewhere(plan: UpPlan) -> list[str]:
    """Voters of the plan's groups, as far as their records tell, whose store is not in its directory."""
    known: dict[str, GroupMember] = {}
    own = {broker.address for broker in plan.brokers}  # By addresses twinlog 0.2 knew them.
    for side in plan.directory.glob("*/twinlog"):
        with suppress(StoreDirectoryError):  # Its broker says at its start what is wrong.
            role, member = load_role(side), load_member(side)
            own |= {role.address if role is not None else "", member.id if member is not None else ""}
            known |= {each.id: each for each in (role.group.members if role is not None and role.group else ())}
    return sorted(each.label for id, each in known.items() if each.votes and id not in own)


def check_ports(plan: UpPlan) -> None:
    """Raise CliError, with the process that has it, for a port in use."""
    busy = busy_ports(plan.listens)
    if busy:
        raise CliError(*in_use(busy), "Stop it, or move all ports with --port-base N.")


class Supervisor:
    """The members as processes. `start`, then `run`."""

    def __init__(
        self,
        plan: UpPlan,
        overrides: Mapping[str, str],
        *,
        with_dashboard: bool = True,
        hands_to_etcd: bool = False,
    ) -> None:
        self.plan = plan
        self._hands_to_etcd = hands_to_etcd
        self._overrides = overrides
        self._write_files(overrides)
        self.processes = {member.name: self._process(member) for member in plan.members}
        if plan.etcd is not None:
            command = tied(ETCD, *plan.etcd.arguments())
            self.processes[plan.etcd.name] = MemberProcess(plan.etcd.name, command, plan.log_path(plan.etcd))
        self.members = tuple(self.processes.values())
        self.dashboard = prepare_dashboard(plan) if with_dashboard else None
        if self.dashboard is not None:
            self.processes[self.dashboard.process.name] = self.dashboard.process
        self._stopping = False
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def _write_files(self, overrides: Mapping[str, str]) -> None:
        for name in ("conf", "logs"):
            (self.plan.directory / name).mkdir(exist_ok=True)
        secret = secret_file(self.plan) if SECRET_KEY not in overrides else None
        for member in self.plan.members:
            text = (
                conf_text(member, overrides, secret_file=secret)
                if isinstance(member, BrokerPlan)
                else conf_text(member, {})
            )
            self.plan.conf_path(member).write_text(text)

    def _process(self, member: NamesrvPlan | BrokerPlan) -> MemberProcess:
        kind = "broker" if isinstance(member, BrokerPlan) else "namesrv"
        command = program(kind, "-c", str(self.plan.conf_path(member)))
        core = member.core if isinstance(member, BrokerPlan) else None
        return MemberProcess(member.name, command, self.plan.log_path(member), core=core)

    # ---- Called by the command

    def start(self) -> None:
        """Start all members at once; from here on signals stop them. The dashboard starts when they are ready."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        for process in self.members:
            process.start()

    def run(self) -> None:
        """Watch the members until a signal arrives and all have stopped."""
        import trio

        async def main() -> None:
            self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()
            if self._stopping:
                self._stop.set()
            try:
                async with trio.open_nursery() as nursery:
                    for process in self.members:
                        nursery.start_soon(self._keep, process)
                    nursery.start_soon(self._watch, nursery)
                    await self._stop.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self._stopping = True  # The next signal ends all at once.
                with trio.CancelScope(shield=True):
                    await self._stop_all()

        try:
            trio.run(main)
        except* CliError as group:
            raise innermost(group) from None

    def kill(self) -> None:
        """End all that still run."""
        for process in self.processes.values():
            if process.is_running:
                process.kill()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            self.kill()
            os._exit(128 + number)
        self._stopping = True
        if self._token is not None and self._stop is not None:
            self._token.run_sync_soon(self._stop.set)

    # ---- Tasks

    async def _keep(self, process: MemberProcess) -> None:
        """Restart it whenever it ends; the dashboard not if it rejects its configuration."""
        import trio

        pause = RESTART_SECONDS
        started = trio.current_time()
        while True:
            status = await process.wait()
            if trio.current_time() - started > STEADY_SECONDS:
                pause = RESTART_SECONDS
            lines = process.last_lines()
            if status == USAGE and process.name == DASHBOARD:
                say(f"no dashboard: {lines[-1] if lines else 'it rejects its configuration'}")
                return
            if status == USAGE:  # It would end like this every time.
                raise CliError(f"{process.name} rejects its configuration.", "\n  ".join(lines), exit_code=USAGE)
            say(f"{process.name} {exit_text(status)}; it restarts in {pause:g} s. Its last lines, from {process.log}:")
            for line in lines or ["(none)"]:
                say(f"  | {line}")
            await trio.sleep(pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)
            process.start()
            started = trio.current_time()
            say(f"{process.name} was restarted (process {process.popen.pid})")

    async def _watch(self, nursery: "trio.Nursery") -> None:
        set_up_log(WARNING)
        from twinlog.cluster.cli.run.up_view import elections_of, watch

        def start_dashboard() -> None:
            if self.dashboard is not None:
                self.dashboard.process.start()
                nursery.start_soon(self._keep, self.dashboard.process)

        url, token_file = (self.dashboard.url, self.dashboard.token_file) if self.dashboard is not None else ("", "")
        elections = elections_of(self.plan, self._overrides)
        await watch(
            self.plan,
            say,
            dashboard_url=url,
            token_file=token_file,
            elections=elections,
            on_ready=start_dashboard,
            hands_to_etcd=self._hands_to_etcd,
        )

    async def _stop_all(self) -> None:
        say("stopping; Ctrl-C again ends at once")
        last = [
            each for each in self.members if each.name in (self.plan.namesrv.name, ETCD)
        ]  # Brokers say good-bye there.
        await self.stop_some([each for each in self.processes.values() if each not in last])
        await self.stop_some(last)
        say("stopped")

    async def stop_some(self, processes: Sequence[MemberProcess]) -> None:
        """Ask processes to end, and wait for them."""
        import trio

        running = [process for process in processes if process.is_running]
        for process in running:
            process.terminate()

        async def tell_who_is_slow() -> None:
            while True:
                await trio.sleep(SLOW_STOP_SECONDS)
                say(f"waiting for {', '.join(p.name for p in running if p.popen.returncode is None)}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_who_is_slow)
            for process in running:
                await process.wait()
            nursery.cancel_scope.cancel()


def say(words: str) -> None:
    """Print one line with the time on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)

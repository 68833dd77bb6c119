"""Patroni and PostgreSQL as processes of a bench: Debian's PostgreSQL 15, and Patroni from PyPI in an environment of its own."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from attrs import frozen

from scripts.fault_matrix.places import Place
from tests.support.process_group import jars
from tests.support.process_group.process import Process

PATRONI, PSYCOPG = "4.1.5", "3.3.9"
POSTGRES = Path("/usr/lib/postgresql/15/bin")
USER = "postgres"  # PostgreSQL does not run as root; Debian's package makes this user.
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
DEBIAN_PYTHON = "/usr/bin/python3"
REST, PORT = 8008, 5432


@frozen(kw_only=True)
class Timing:
    """Patroni's settings for the whole group, by default its defaults."""

    ttl: int = 30
    loop_wait: int = 10
    retry_timeout: int = 10
    failsafe_mode: bool = False


DEFAULTS = Timing()
# The smallest ttl that Patroni takes; loop_wait + 2 * retry_timeout may not exceed it.
TUNED = Timing(ttl=20, loop_wait=5, retry_timeout=5)


def install(root: Path) -> Path:
    """The environment with Patroni and psycopg, and PostgreSQL where it is missing. Makes what is not there yet.

    It is a copy below `root`: PostgreSQL's user may not look into the cache of the one who runs this.
    """
    if not (POSTGRES / "postgres").exists():
        # Without the cluster that Debian's package would make and start.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "install", "-y", "-q", "postgresql-15"], check=True, env=environment, timeout=600)
    wanted = [f"patroni[etcd3]=={PATRONI}", f"psycopg[binary]=={PSYCOPG}"]

    def make(folder: Path) -> None:
        subprocess.run([DEBIAN_PYTHON, "-m", "venv", folder], check=True, timeout=120)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *wanted], check=True, timeout=300)

    made = jars.made_once(jars.cache_dir() / "patroni" / f"{PATRONI}-{PSYCOPG}", make)
    return Path(shutil.copytree(made, root / "environment", symlinks=True))


class PatroniMember(Process):
    """Patroni, and the PostgreSQL that it runs: all processes of a machine."""

    def __init__(
        self, root: Path, place: Place, scope: str, etcd: Sequence[str], timing: Timing, environment: Path
    ) -> None:
        self.root, self.place, self.data = root, place, root / "data"
        root.mkdir(parents=True)
        shutil.chown(root, USER, USER)
        conf = root / "patroni.json"  # JSON is YAML.
        conf.write_text(json.dumps(_settings(root, place, scope, etcd, timing), indent=1))
        command = [*place.prefix, *AS_USER, str(environment / "bin" / "python"), "-m", "patroni", str(conf)]
        super().__init__(f"patroni {place.name}", command, log=root / "log")

    @property
    def postmaster(self) -> psutil.Process | None:
        """The first process of its PostgreSQL; it is no child of Patroni's."""
        with suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            found = psutil.Process(int((self.data / "postmaster.pid").read_text().splitlines()[0]))
            if "postgres" in found.name():
                return found
        return None

    def pids(self) -> list[int]:
        """Patroni first, so that it does not see its server go."""
        own = [psutil.Process(self.pid)] if self.running else []
        if server := self.postmaster:
            own.append(server)
        found = list(own)
        for each in own:
            with suppress(psutil.NoSuchProcess):
                found += each.children(recursive=True)
        return [each.pid for each in found]

    def end(self) -> None:
        """All of it, at once."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()

    def cluster(self) -> list[Mapping[str, Any]]:
        """The members, as this one sees them. Raises OSError."""
        with urlopen(f"http://{self.place.address}:{REST}/cluster", timeout=1) as answer:
            found: list[Mapping[str, Any]] = json.load(answer)["members"]
        return found


def rows_at(address: str) -> set[int]:
    """All numbers that a server has. Raises OSError when it cannot be read."""
    command = [str(POSTGRES / "psql"), "-h", address, "-U", "postgres", "-Atc", "SELECT number FROM numbers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())
    return {int(line) for line in done.stdout.split()}


def _settings(root: Path, place: Place, scope: str, etcd: Sequence[str], timing: Timing) -> dict[str, Any]:
    timings = {"ttl": timing.ttl, "loop_wait": timing.loop_wait, "retry_timeout": timing.retry_timeout}
    group = {
        **timings,
        "synchronous_mode": True,
        "synchronous_mode_strict": False,
        "failsafe_mode": timing.failsafe_mode,
        "postgresql": {"use_pg_rewind": True},
    }
    trusted = [f"host {what} all 198.51.100.0/24 trust" for what in ("all", "replication")]
    return {
        "scope": scope,
        "namespace": "/patroni/",
        "name": place.name,
        "restapi": {"listen": f"{place.address}:{REST}", "connect_address": f"{place.address}:{REST}"},
        "etcd3": {"hosts": [url.removeprefix("http://") for url in etcd]},
        "bootstrap": {"dcs": group, "initdb": [{"encoding": "UTF8"}, "data-checksums"]},
        "postgresql": {
            "listen": f"{place.address}:{PORT}",
            "connect_address": f"{place.address}:{PORT}",
            "data_dir": str(root / "data"),
            "bin_dir": str(POSTGRES),
            "pgpass": str(root / "pgpass"),
            "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
            "pg_hba": ["local all all trust", *trusted],
            "parameters": {"unix_socket_directories": str(root)},
        },
    }

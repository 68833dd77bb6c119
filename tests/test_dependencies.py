"""What `pip install twinlog` brings is what twinlog.client needs, and no more; the extra `server` has the rest."""

import subprocess
import sys

import pytest

from tests.product import FILES, imports_of
from tests.support.requirements import declared, owners, with_what_they_need

# Imported inside of functions that a client on asyncio does not call: on trio, in members, for a server's own certificate.
NOT_ALWAYS = {
    ("twinlog.cluster.remoting.streams", "trio"),
    ("twinlog.cluster.config.group_secret", "trio"),
    ("twinlog.cluster.remoting.tls.contexts", "cryptography"),
}
# Packages whose modules are imported at their first use, which no import names.
LATE = ("twinlog.cluster.admin", "twinlog.cluster.observe", "twinlog.cluster.remoting.headers")
OF_SPARK = {"delta", "pyarrow", "pyiceberg", "pyspark", "py4j"}
# Imported by name; Python has zstd itself from 3.14 on.
BY_NAME = {"twinlog.store.record.compression": {"lz4"} | ({"backports"} if sys.version_info < (3, 14) else set())}


def of_others(module: str) -> set[str]:
    """Top-level modules of other packages that a module of ours imports, also inside of functions."""
    found = {name.partition(".")[0] for name in imports_of(module, at_run_time=True)}
    found |= BY_NAME.get(module, set())
    return found - sys.stdlib_module_names - {"", "twinlog"}


def reached_from(module: str) -> set[str]:
    """Modules of ours that this one may import, however far down and however late."""
    found: set[str] = set()
    waiting = [module, *(name for name in FILES if name.startswith(tuple(f"{package}." for package in LATE)))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            parts = name.split(".")
            above = {".".join(parts[:length]) for length in range(2, len(parts))}
            waiting += (above | imports_of(name, at_run_time=True)) & FILES.keys()
    return found


def packages_of(modules: set[str]) -> set[str]:
    known = owners()
    return {min(known[module]) for module in modules}


def test_the_client_needs_all_of_the_core_and_nothing_else():
    """With its administration; the exceptions are few, and each is there for a reason."""
    modules = reached_from("twinlog.client")
    assert {(module, name) for module, name in NOT_ALWAYS if name in of_others(module)} == NOT_ALWAYS
    used = {name for module in modules for name in of_others(module) if (module, name) not in NOT_ALWAYS}
    assert packages_of(used) == declared()


def test_the_extra_server_has_the_rest():
    """All that any module imports is declared, but for Spark's packages and pytest, and nothing is declared that none imports."""
    used = {name for module in FILES for name in of_others(module)} - OF_SPARK - {"pytest"}
    assert packages_of(used) == declared("server")


REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"{{name}} is not of the core", name=name)

sys.meta_path.insert(0, Refuse())
"""
CLIENT = """
import asyncio
from importlib import import_module
from twinlog.client import Client, OutgoingMessage, RemotingError, open_admin

async def main():
    async with Client("127.0.0.1:1") as client:
        try:
            await client.producer("group").send(OutgoingMessage(topic="topic", body=b""), timeout_ms=100)
        except RemotingError:
            print("refused")
    async with open_admin(("127.0.0.1:1",)) as admin:
        try:
            await admin.list_members()
        except RemotingError:
            print("refused")

asyncio.run(main())
servers = {"http", "dashboard", "namesrv", "cli", "mqadmin", "metrics"}
print(sorted(name for name in sys.modules if name.startswith("twinlog.cluster.") and name.split(".")[2] in servers))
for name in LATE:
    import_module(name)
"""


@pytest.fixture(scope="module")
def refusing() -> str:
    """A program's first lines: only the core, and what it needs itself, can be imported."""
    core = with_what_they_need(declared())
    return REFUSING.format(refused={module for module, names in owners().items() if not names & core} - {"twinlog"})


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)


def test_the_client_runs_on_asyncio_with_the_core_alone(refusing):
    late = sorted(name for name in FILES if name.startswith(tuple(f"{package}." for package in LATE)))
    done = run(f"{refusing}LATE = {late}\n{CLIENT}")
    assert (done.returncode, done.stdout) == (0, "refused\nrefused\n[]\n"), done.stderr


def test_the_command_says_in_a_line_what_to_install(refusing):
    done = run(f"{refusing}from twinlog.cluster.cli.program import main; main()")
    assert done.returncode == 1
    assert done.stderr == (
        "twinlog: the command line needs click, which is not installed here. Next: pip install 'twinlog[server]'\n"
    )


def test_a_module_that_is_missing_for_another_reason_is_no_matter_of_the_extra():
    done = run(
        "import sys; sys.modules['twinlog.cluster.cli.common'] = None\nfrom twinlog.cluster.cli.program import main; main()"
    )
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr

"""Names of the processes that hold a port."""

from types import SimpleNamespace

from twinlog.cluster.cli.run.member_process import program
from twinlog.cluster.cli.run.ports import _name


def test_a_process_of_ours_is_named_by_its_command():
    ours = SimpleNamespace(cmdline=lambda: program("broker", "-c", "broker.conf"), name=lambda: "python3")
    java = SimpleNamespace(cmdline=lambda: ["java", "-server"], name=lambda: "java")
    assert (_name(ours), _name(java)) == ("twinlog broker", "java")

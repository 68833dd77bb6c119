"""Every command's help ends with examples that would run, and a command imports only what it needs."""

import re
import shlex
import subprocess
import sys

import click
import pytest
import trio

from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.main import cli
from twinlog.cluster.config.contexts import Context, Contexts, contexts_path, save_contexts


def commands(group: click.Group, *names: str):
    for name, command in group.commands.items():
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


COMMANDS = dict(commands(cli))


def example_lines(command: click.Command) -> list[str]:
    _, _, text = (command.epilog or "").partition("Examples:\n")
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("names", [names for names, command in COMMANDS.items() if not command.hidden])
def test_every_help_ends_with_examples(names):
    lines = example_lines(COMMANDS[names])
    assert lines
    assert any(line.find("twinlog ") >= 0 for line in lines)


def invocations():
    for names, command in [((), cli), *COMMANDS.items()]:
        for line in example_lines(command):
            for found in re.finditer(r"(?:^|[|(;] |then: )twinlog (.*)", line):
                yield pytest.param(found[1], id=" ".join(names) + ": " + line)


def cut(text: str) -> list[str]:
    """The words of one command: up to a pipe, a redirection, a comment after blanks, or the bracket round it."""
    words = []
    for word in shlex.split(re.split(r"\s{3,}", text)[0], posix=True):
        if word in ("|", ">", "&&"):
            break
        words.append(word.rstrip(")"))
    return words


@pytest.mark.slow
@pytest.mark.parametrize("text", list(invocations()))
def test_examples_are_commands_that_can_be(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_contexts(contexts_path(), Contexts().with_context(Context(name="test", name_servers=("10.0.0.1:9876",))))
    words, command = cut(re.sub(r"\$\([^)]*\)", "x", text)), cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    if words in (["--help"], []) and isinstance(command, click.Group):
        return
    fault = ""
    try:
        command.make_context(command.name, list(words))
    except click.exceptions.Exit:
        pass
    except click.BadParameter as error:
        fault = str(error)
    assert not fault or "does not exist" in fault or "No such file" in fault


def imported_by(*arguments: str) -> set[str]:
    program = (
        "import sys\nfrom twinlog.cluster.cli.main import cli\n"
        f"try: cli({list(arguments)!r}, standalone_mode=False)\n"
        "except BaseException as error: print(type(error).__name__, error)\n"
        "print('\\n' + '\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.rpartition("\n\n")[2].splitlines())


HEAVY = {"numpy", "rich", "pygments", "asyncio.events", "yaml", "lark", "cryptography", "psutil", "tenacity"}
HEAVY |= {"pyspark", "pyarrow", "pandas"}
NOBODY = ("-n", "127.0.0.1:1")  # A port that refuses at once: all that a command imports before it asks.


def test_a_broker_starts_without_what_few_of_them_use():
    found = imported_by("broker", "--help")
    assert "twinlog.cluster.broker.broker" in found
    assert not found & {"psutil", "yaml", "tenacity", "numpy", "pyspark", "anyio.streams.tls"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list", *NOBODY),
        ("topic", "show", "orders", *NOBODY),
        ("group", "list", *NOBODY),
        ("lag", *NOBODY),
        ("send", "orders", "x", *NOBODY),
        ("consume", "orders", *NOBODY),
        ("tail", "orders", *NOBODY),
        ("peek", "orders", *NOBODY),
        ("mqadmin", "topicRoute", "-t", "orders", *NOBODY),
        ("mqadmin", "clusterList", *NOBODY),
        ("mqadmin", "consumerProgress", *NOBODY),
        ("mqadmin", "queryMsgByKey", "-t", "orders", "-k", "k", *NOBODY),
        ("config", "explain", "flushDiskType"),
        ("context", "list"),
        ("completion", "bash"),
        ("audit", "--help"),
        ("--help",),
    ],
)
def test_a_command_imports_nothing_heavy(arguments, tmp_path, monkeypatch):
    """Under half a second from start to first byte: numpy, rich and their like take longer than all the rest."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = imported_by(*arguments)
    assert "twinlog.cluster.cli.main" in found
    heavy = HEAVY - {"asyncio.events"}  # structlog takes it along.
    assert not found & heavy
    assert len({name for name in found if name.startswith("twinlog.")}) < 150


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_shell_is_told_how_to_complete(cluster, shell):
    assert "_TWINLOG_COMPLETE" in (await cluster.twinlog("completion", shell)).stdout


async def completed(cluster, *words: str) -> list[str]:
    env = {
        "_TWINLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": "twinlog " + " ".join(words),
        "NAMESRV_ADDR": cluster.namesrv,
    }
    env |= {"COMP_CWORD": str(len(words)), "PATH": "/usr/bin:/bin"}
    program = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['twinlog']; from twinlog.cluster.cli.main import main; main()",
    ]
    done = await trio.run_process(program, capture_stdout=True, capture_stderr=True, env=env)
    return [line.partition(",")[2] for line in done.stdout.decode().splitlines()]


async def test_names_are_completed_from_what_runs(cluster, monkeypatch):
    monkeypatch.setattr("twinlog.cluster.cli.common.complete.SECONDS_MAX", 5)
    await cluster.twinlog("topic", "create", "orders")
    context = click.Context(cli, resilient_parsing=True)
    context.params["namesrv"] = cluster.namesrv
    for kind, wanted in ((complete.topics, "orders"), (complete.members, "broker-a-0"), (complete.brokers, "broker-a")):
        found = await trio.to_thread.run_sync(kind, context, None, wanted[:4])
        assert wanted in found
    found = await trio.to_thread.run_sync(complete.groups, context, None, "TOOLS")
    assert found == ["TOOLS_CONSUMER"]


async def test_commands_and_options_are_completed(cluster):
    assert "orders" not in await completed(cluster, "to")
    assert "topic" in await completed(cluster, "to")
    assert "flushDiskType" in [each for each in await completed(cluster, "config", "explain", "flushDisk") if each]

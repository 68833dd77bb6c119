"""With -o json stdout has one document whatever the exit status: the answer, or what failed, what was done and what not."""

import json
from collections.abc import Iterator

import click
import orjson
import pytest
import yaml
from click.testing import CliRunner

from tests.cluster.cli.json_schema import violations
from tests.support.process_group.ports import free_port
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.cli.main import cli
from twinlog.cluster.user_errors import FAILED, UNREACHABLE, USAGE, Failure

ARGUMENTS = {  # Of commands that need some.
    "topic create": ["orders"],
    "topic update": ["orders", "--queues", "8"],
    "topic delete": ["orders", "--yes"],
    "topic show": ["orders"],
    "group create": ["readers"],
    "group update": ["readers", "--retry-max", "3"],
    "group delete": ["readers", "--yes"],
    "group show": ["readers"],
    "group clone": ["readers", "others", "--yes"],
    "group reset": ["readers", "orders", "--to", "first", "--yes"],
    "group seek": ["readers", "orders", "0", "1", "--yes"],
    "log diff": ["--live", "broker-a-0", "broker-a-1"],
    "audit": ["--live", "broker-a-0", "broker-a-1"],
    "config set": ["broker-a-0", "flushDiskType=ASYNC_FLUSH", "--yes"],
    "config get": ["broker-a-0"],
    "config show": ["broker-a-0"],
    "config diff": ["broker-a-0", "broker-a-1"],
    "rewind": ["broker-a-1", "--yes"],
    "reinit": ["broker-a-1", "--yes"],
    "explain": ["broker-a-1"],
    "failover": ["--candidate", "broker-a-1", "--yes"],
    "switchover": ["--yes"],
    "send": ["orders", "hello"],
    "consume": ["orders"],
    "peek": ["orders"],
    "tail": ["orders"],
    "wait": ["healthy", "--timeout", "0.1"],
}


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        elif any(isinstance(each.type, click.Choice) and "json" in each.type.choices for each in command.params):
            yield " ".join((*words, name)), command


OF_A_CLUSTER = {
    name: command
    for name, command in commands(cli)
    if any(each.name == "namesrv" for each in command.params)
    and name not in ("check", "doctor", "bundle", "context add")
}


def failure_in(text: str) -> dict:
    found = json.loads(text)
    assert violations(found, schema_of(Failure)) == []
    return found


@pytest.mark.parametrize("name", OF_A_CLUSTER)
def test_a_command_that_reaches_nobody_answers_with_what_failed(name, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    where = f"127.0.0.1:{free_port()}"
    needed = ARGUMENTS.get(name, [])
    done = CliRunner().invoke(cli, [*name.split(), *needed, "-n", where, "-o", "json"])
    assert done.exit_code in (UNREACHABLE, USAGE, FAILED, 5), (done.output, done.exception)
    found = failure_in(done.stdout)
    assert found["exit_status"] == done.exit_code
    assert found["error"] in done.stderr
    assert (found["done"], found["not_done"]) == ([], [])
    assert done.exit_code != USAGE, f"this test does not know what {name} needs: {found}"


@pytest.mark.parametrize("words", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]])
def test_wrong_usage_is_a_document_too(words):
    done = CliRunner().invoke(cli, ["topic", "create", *words])
    assert done.exit_code == USAGE
    assert "Missing argument" in failure_in(done.stdout)["error"]


def test_as_yaml():
    done = CliRunner().invoke(cli, ["topic", "create", "-o", "yaml"])
    assert yaml.safe_load(done.stdout)["exit_status"] == USAGE


def test_without_json_stdout_stays_empty():
    done = CliRunner().invoke(cli, ["topic", "create"])
    assert (done.exit_code, done.stdout) == (USAGE, "")


def test_every_schema_has_that_of_a_failure():
    done = CliRunner().invoke(cli, ["list", "-o", "schema"])
    of_failure = {**orjson.loads(done.stdout)["$defs"]["Failure"]["properties"], "schema": {"const": 1}}
    assert of_failure == schema_of(Failure)["properties"]

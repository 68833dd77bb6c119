"""`twinlog config`, `context` and `bundle` against a real name server, master and slave."""

import json
import os
import stat
import tarfile

import click
import pytest
from attrs import evolve
from click.testing import CliRunner

from twinlog.cluster.cli.common.options import namesrv_option
from twinlog.cluster.cli.common.which_cluster import cluster_text
from twinlog.cluster.config.contexts import Context, Contexts, contexts_path, save_contexts


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Nobody's contexts and logs but the test's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def document(result):
    return json.loads(result.stdout)


# ---- config


async def test_what_is_in_force_is_told_with_its_source(cluster):
    options = document(await cluster.twinlog("config", "get", "broker-a-0", "-o", "json"))["options"]
    by_key = {option["key"]: option for option in options}
    assert (by_key["brokerName"]["value"], by_key["brokerName"]["source"]) == ("broker-a", "set")
    assert (by_key["flushDiskType"]["value"], by_key["flushDiskType"]["source"]) == ("ASYNC_FLUSH", "default")
    some = await cluster.twinlog("config", "get", "broker-a-0", "brokerRole", "traceOn", "-o", "tsv")
    assert [line.split("\t")[0] for line in some.stdout.splitlines()] == ["key", "brokerRole", "traceOn"]
    changed = await cluster.twinlog("config", "get", "broker-a-0", "--set-only")
    assert "traceOn" not in changed.stdout


async def test_an_option_is_changed_while_the_broker_runs(cluster):
    preview = await cluster.twinlog("config", "set", "broker-a-0", "traceOn=false", "--dry-run")
    assert "nothing was changed" in preview.stdout
    assert cluster.master.config.trace_on is True
    await cluster.twinlog("config", "set", "broker-a-0", "traceOn=false", "--yes")
    assert cluster.master.config.trace_on is False
    assert cluster.slave.config.trace_on is True


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ("storePathRootDir=/tmp/elsewhere", 4, "It is read at the start only."),
        ("noSuchOption=1", 4, "It has no such option."),
        ("traceOn=perhaps", 1, "traceOn=perhaps: expected true or false"),
        ("fileReservedTime=0", 1, "fileReservedTime=0: expected 1 to"),
    ],
)
async def test_what_a_broker_does_not_take_is_told(cluster, change, status, words):
    result = await cluster.twinlog("config", "set", "broker-a-0", change, "--yes", ok=False)
    assert result.exit_code == status
    assert words in result.stderr
    assert "Traceback" not in result.output


async def test_two_brokers_are_compared_without_what_each_has_of_its_own(cluster):
    same = await cluster.twinlog("config", "diff", "broker-a-0", "broker-a-1")
    assert "have the same configuration" in same.stdout
    await cluster.twinlog("config", "set", "broker-a-0", "traceOn=false", "--yes")
    differs = await cluster.twinlog("config", "diff", "broker-a-0", "broker-a-1", "-o", "json", ok=False)
    assert differs.exit_code == 1
    assert document(differs)["differences"] == [{"key": "traceOn", "left": "false", "right": "true"}]
    own = await cluster.twinlog("config", "diff", "broker-a-0", "broker-a-1", "--own", ok=False)
    assert "brokerRole" in own.stdout


async def test_a_file_is_compared_with_what_runs(cluster, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("traceOn=false\nflushDiskType=ASYNC_FLUSH\n")
    result = await cluster.twinlog("config", "diff", str(file), "broker-a-0", "-o", "json", ok=False)
    found = {each["key"]: (each["left"], each["right"]) for each in document(result)["differences"]}
    assert found["traceOn"] == ("false", "true")
    assert "flushDiskType" not in found
    assert "registerBrokerTimeoutMills" not in found  # At its default on both sides.


async def test_options_are_explained_without_a_cluster(cluster):
    told = (await cluster.twinlog("config", "explain", "flushdisktype")).stdout
    for words in ("flushDiskType", "choice", "ASYNC_FLUSH or SYNC_FLUSH", "read only at the start"):
        assert words in told
    changing = document(await cluster.twinlog("config", "explain", "fileReservedTime", "-o", "json"))
    assert (changing["unit"], changing["change"]) == ("hours", "1 to 87600")
    unknown = await cluster.twinlog("config", "explain", "flushDisk", ok=False)
    assert unknown.exit_code == 2
    assert "Did you mean flushDiskType" in unknown.stderr
    rocketmqs = await cluster.twinlog("config", "explain", "sendMessageThreadPoolNums", ok=False)
    assert "without effect in twinlog" in rocketmqs.stderr


# ---- context


async def test_a_context_takes_the_place_of_options(cluster, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")  # The fixture's runner sets its own.
    added = await cluster.twinlog("context", "add", "here", "-n", cluster.namesrv)
    assert "*" in added.stdout
    await cluster.twinlog("context", "add", "gone", "-n", "127.0.0.1:1")
    assert stat.S_IMODE(os.stat(contexts_path()).st_mode) == 0o600
    members = document(await cluster.twinlog("list", "--context", "here", "-o", "json"))["members"]
    assert len(members) == 2
    unreachable = await cluster.twinlog("list", "--context", "gone", ok=False)
    assert unreachable.exit_code == 3
    by_option = await cluster.twinlog("list", "--context", "gone", "-n", cluster.namesrv, ok=False)
    assert by_option.exit_code == 0
    used = document(await cluster.twinlog("context", "use", "gone", "-o", "json"))["contexts"]
    assert {each["name"]: each["in_use"] for each in used} == {"here": False, "gone": True}
    await cluster.twinlog("context", "remove", "gone")
    assert "gone" not in (await cluster.twinlog("context", "list")).stdout


async def test_name_servers_that_are_given_get_nothing_of_a_context_in_the_environment(cluster, monkeypatch, tmp_path):
    """Neither credentials nor TLS nor the name: it is another cluster."""
    file = tmp_path / "keys.yml"
    file.write_text("nothing: here\n")
    await cluster.twinlog("context", "add", "prod", "-n", "127.0.0.1:1", "--credentials", str(file))
    for name in ("prod", "nowhere"):
        monkeypatch.setenv("TWINLOG_CONTEXT", name)
        assert document(await cluster.twinlog("list", "-n", cluster.namesrv, "-o", "json"))["issues"] == []
    assert (await cluster.twinlog("list", ok=False)).exit_code == 2
    both = await cluster.twinlog("list", "--context", "prod", "-n", cluster.namesrv, ok=False)
    assert both.exit_code == 2
    assert "has no accessKey and secretKey, and the context prod names it" in both.stderr


@click.command()
@namesrv_option
def asking(namesrv):
    click.echo(f"gone{cluster_text()}")


@pytest.mark.parametrize(
    ("environment", "arguments", "words"),
    [
        ({}, (), "gone"),
        ({"NAMESRV_ADDR": "h:1"}, (), "gone"),
        ({"TWINLOG_CONTEXT": "prod"}, (), "gone in prod"),
        ({"TWINLOG_CONTEXT": "prod"}, ("-n", "h:2"), "gone at h:2"),
        ({}, ("--context", "prod"), "gone in prod"),
        ({"TWINLOG_CONTEXT": "test"}, ("-n", "h:2", "--context", "prod"), "gone in prod at h:2"),
    ],
)
def test_a_question_says_where_something_will_be_gone(environment, arguments, words):
    contexts = Contexts().with_context(Context(name="prod", name_servers=("h:3",)))
    save_contexts(contexts_path(), evolve(contexts, current=None))
    result = CliRunner(env=environment).invoke(asking, arguments)
    assert result.output.strip() == words


async def test_contexts_that_cannot_be_are_told(cluster):
    for arguments, words in (
        (("list", "--context", "nowhere"), "twinlog context add NAME"),
        (("context", "use", "nowhere"), "there are: none yet"),
        (("context", "add", "no/good", "-n", "h:1"), "letters, digits"),
        (("context", "add", "x", "-n", "h:1", "--trust", str(contexts_path())), "does not exist"),
    ):
        result = await cluster.twinlog(*arguments, ok=False)
        assert result.exit_code == 2
        assert words in result.stderr
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_text("contexts = 3")
    broken = await cluster.twinlog("context", "list", ok=False)
    assert broken.exit_code == 2
    assert "config.toml is invalid: " in broken.stderr


# ---- bundle


async def test_a_bundle_says_what_is_in_it_and_holds_no_secrets_or_messages(cluster, tmp_path):
    await cluster.twinlog("send", "orders", "a body that is nobody else's business")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "broker-a-0.log").write_text("started secretKey=abcdefg12345 here\n")
    out = tmp_path / "case.tar.gz"
    planned = await cluster.twinlog("bundle", "--out", str(out), "--logs", str(logs), "--dry-run")
    assert "nothing was written" in planned.stdout
    assert not out.exists()
    done = await cluster.twinlog("bundle", "--out", str(out), "--logs", str(logs))
    with tarfile.open(out) as archive:
        files = {name: archive.extractfile(name).read() for name in archive.getnames()}
    assert {name.removeprefix("case/") for name in files} >= {
        *("versions.json", "list.json", "check.json", "history.json", "topics.json", "groups.json"),
        *("members/broker-a-0/broker.conf", "members/broker-a-1/status.json", "logs/broker-a-0.log"),
    }
    for name in files:
        assert name.removeprefix("case/") in done.stdout
    everything = b"".join(files.values())
    assert b"abcdefg12345" not in everything
    assert b"nobody else" not in everything
    assert b"orders" in files["case/topics.json"]
    assert json.loads(files["case/list.json"])["members"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    again = await cluster.twinlog("bundle", "--out", str(out), ok=False)
    assert "exists already" in again.stderr


async def test_a_bundle_of_what_does_not_answer_says_why(cluster, tmp_path):
    cluster.slave.registration.settings.address = "127.0.0.1:9"
    await cluster.slave.registration.register_all()
    out = tmp_path / "case.tar.gz"
    await cluster.twinlog("bundle", "--out", str(out))
    with tarfile.open(out) as archive:
        assert any(name.endswith("members/broker-a-1/error.txt") for name in archive.getnames())

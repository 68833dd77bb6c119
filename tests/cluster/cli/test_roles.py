"""The commands of roles, against a master and a slave inside the test, whose roles really change."""

import json
from datetime import datetime

import pytest
import trio

from tests.cluster.cli.json_schema import violations
from tests.cluster.cli.terminal import Terminal
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.admin.repair import RepairPlan, RepairResult
from twinlog.cluster.admin.roles import AutoFailoverState, ChangeOutcome, History, PlannedSwitchover
from twinlog.cluster.broker.peers.role_messages import ChangeState
from twinlog.cluster.cli.common.values import AT, DURATION, LOSS, moment_of
from twinlog.cluster.config.contexts import Context, Contexts, contexts_path, save_contexts
from twinlog.cluster.config.group_secret import new_secret, write_secrets
from twinlog.ha.slave.client import connect_socket


@pytest.fixture
async def group(cluster):
    """With the record of both: only then may roles change."""
    with trio.fail_after(20):
        while not all(broker.roles.member.role_state() for broker in (cluster.master, cluster.slave)):
            await trio.sleep(0.01)
        while cluster.slave.ha.client.state != "streaming":
            await trio.sleep(0.01)
    return cluster


def of(kind: type, text: str) -> dict:
    document = json.loads(text)
    assert violations(document, schema_of(kind)) == []
    return document


async def test_a_switchover_and_its_history(group):
    """The plan changes nothing; the answer has the form that its schema says; the history names both."""
    plan = of(ChangeState, (await group.twinlog("switchover", "--dry-run", "-o", "json")).stdout)
    assert [step["number"] for step in plan["steps"]] == list(range(1, 9))
    assert not group.slave.roles.member.is_serving
    text = (await group.twinlog("switchover", "--dry-run")).stdout
    assert "broker-a-0" in text
    assert "127.0.0.1" not in text, "members are told by name"
    done = await group.twinlog("switchover", "--yes", "--reason", "new disk", "-o", "json", ok=False)
    assert done.exit_code in (0, 6), done.output
    result = of(ChangeOutcome, done.stdout)
    assert (result["winner"], result["lost_bytes"]) == (group.slave.address, 0)
    assert group.slave.roles.member.is_serving
    told = of(History, (await group.twinlog("history", "-o", "json")).stdout)["reigns"][-1]
    assert (told["old"], told["new"], told["reason"]) == ("broker-a-0", "broker-a-1", "new disk")
    assert told["decided_by"] == "person"
    lines = (await group.twinlog("history")).stdout.splitlines()
    assert lines[0].split() == ["EPOCH", "FROM", "OLD", "NEW", "KIND", "BY", "WHEN", "LOST", "REASON"]
    assert (await group.twinlog("history", "-o", "tsv")).stdout.splitlines()[-1].endswith("\tnew disk")


async def test_words_for_a_person(group):
    """Who is there, each step on stderr, the pause."""
    done = await group.twinlog("switchover", "--candidate", "broker-a-1", "--yes", ok=False)
    assert done.exit_code in (0, 6), done.output
    assert "MEMBER" in done.stdout
    assert "broker-a-1 is the master of broker-a in epoch 1" in done.stdout
    assert "write pause " in done.stdout
    assert done.stderr.splitlines()[0].startswith("1. ask broker-a-0")


async def test_nothing_is_done_without_a_yes(group):
    """Where nobody can be asked it is a usage error, before anything is looked at."""
    for command in (
        ("switchover",),
        ("failover", "--candidate", "broker-a-1"),
        ("rewind", "broker-a-1"),
        ("reinit", "broker-a-1"),
    ):
        result = await group.twinlog(*command, ok=False)
        assert (result.exit_code, "--yes" in result.output) == (2, True), result.output
    assert not group.slave.roles.member.is_serving


async def test_a_refusal_is_status_4(group):
    result = await group.twinlog("failover", "--candidate", "broker-a-1", "--yes", ok=False)
    assert result.exit_code == 4
    assert "broker-a-1: may not be chosen: " in result.stderr
    assert "twinlog switchover --candidate broker-a-1" in result.stderr
    result = await group.twinlog("reinit", "broker-a-0", "--yes", ok=False)
    assert result.exit_code == 4, result.output


async def test_usage(group):
    for arguments, words in (
        (("failover", "--candidate", "broker-x-7", "--yes"), "No member is called broker-x-7"),
        (("switchover", "--group", "broker-x", "--yes"), "There is no group broker-x"),
        (("failover", "--candidate", "broker-a-1", "--accept-data-loss", "much"), "no size"),
        (("pause", "--for", "soon"), "not a duration"),
    ):
        result = await group.twinlog(*arguments, ok=False)
        assert (result.exit_code, words in result.output) == (2, True), result.output


async def test_a_pause_is_shown_and_taken_back(group):
    await group.twinlog("pause", "--for", "1h", "--reason", "new switches")
    listed = (await group.twinlog("list")).stdout
    assert "note: role changes of broker-a are paused until" in listed
    assert json.loads((await group.twinlog("list", "-o", "json")).stdout)["notes"]
    assert (await group.twinlog("switchover", "--yes", ok=False)).exit_code == 4
    await group.twinlog("resume")
    assert "paused" not in (await group.twinlog("list")).stdout


async def test_who_begins_a_failover_is_shown_and_changed_for_all_members(group):
    told = of(AutoFailoverState, (await group.twinlog("auto-failover", "-o", "json")).stdout)
    assert (told["mode"], set(told["members"].values())) == ("off", {"off"})
    changed = of(AutoFailoverState, (await group.twinlog("auto-failover", "members", "-o", "json")).stdout)
    assert (changed["group"], changed["mode"]) == ("broker-a", "members")
    with trio.fail_after(10):
        while any(each.roles.member.group.auto_failover != "members" for each in (group.master, group.slave)):
            await trio.sleep(0.01)
    assert "broker-a: autoFailover=members" in (await group.twinlog("auto-failover")).stdout
    assert (await group.twinlog("auto-failover", "sometimes", ok=False)).exit_code == 2


async def test_a_switchover_for_later_is_shown_and_taken_back(group):
    planned = await group.twinlog("switchover", "--candidate", "broker-a-1", "--at", "2099-01-01T03:00")
    assert "broker-a is to change its master at 2099-01-01 03:00:00" in planned.stderr
    listed = (await group.twinlog("list")).stdout
    assert "note: broker-a is to be switched over to broker-a-1 at 2099-01-01 03:00:00" in listed
    off = await group.twinlog("switchover", "--at", "off", "-o", "json")
    told = of(PlannedSwitchover, off.stdout)
    assert (told["group"], told["at_ms"], told["candidate"]) == ("broker-a", None, None)
    assert "switched over" not in (await group.twinlog("list")).stdout


async def test_a_log_that_fits_is_not_cut(group):
    plan = of(RepairPlan, (await group.twinlog("rewind", "broker-a-1", "--dry-run", "-o", "json")).stdout)
    assert plan["first_offset"] is None
    assert "nothing of broker-a-1's log" in (await group.twinlog("rewind", "broker-a-1", "--dry-run")).stdout
    assert of(RepairResult, (await group.twinlog("rewind", "broker-a-1", "--yes", "-o", "json")).stdout)["kept"] == []


async def test_a_reinit_keeps_the_old_log(group):
    await group.twinlog("send", "orders", "hello")
    with trio.fail_after(10):
        while group.slave.store.max_offset != group.master.store.max_offset:
            await trio.sleep(0.01)
    assert "would be moved aside" in (await group.twinlog("reinit", "broker-a-1", "--dry-run")).stdout
    result = of(RepairResult, (await group.twinlog("reinit", "broker-a-1", "--yes", "-o", "json")).stdout)
    assert [part["first_offset"] for part in result["kept"]] == [0]
    assert group.slave.store.max_offset == group.master.store.max_offset


@pytest.fixture
async def held_up(group, monkeypatch):
    """The slave gets no connection to its master until the event is set."""
    may_connect = trio.Event()

    async def connect(address):
        await may_connect.wait()
        return await connect_socket(address)

    monkeypatch.setattr(group.slave.ha.client, "connect", connect)
    return may_connect


async def test_a_reinit_that_is_run_again_goes_on_watching(group, held_up):
    """The first command gives up waiting; the second puts nothing aside, shows a bar on a terminal, and sees the end."""
    await group.twinlog("send", "orders", "x" * 10_000)
    with trio.fail_after(10):
        while group.slave.store.max_offset != group.master.store.max_offset:
            await trio.sleep(0.01)
    first = await group.twinlog("reinit", "broker-a-1", "--yes", "--timeout", "0.5", ok=False)
    assert first.exit_code == 5, first.output
    assert "it goes on" in first.stderr
    assert "twinlog reinit broker-a-1 --yes" in first.stderr, "how to go on watching"
    assert group.slave.store.max_offset == 0
    plan = of(RepairPlan, (await group.twinlog("reinit", "broker-a-1", "--dry-run", "-o", "json")).stdout)
    assert (plan["first_offset"], plan["why"]) == (None, "it is being filled already")
    with Terminal() as terminal:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.run, group.namesrv, "reinit", "broker-a-1")
            await terminal.shows("type the group's name (broker-a)")
            terminal.type("broker-a\n")
            await terminal.shows("broker-a-1 copies its master's log", "0%")
            held_up.set()
        assert terminal.status == 0, terminal.shown
        assert terminal.stdout.startswith("broker-a-1 follows its master and holds its log up to byte ")
    assert len(list((group.slave.store.config.root / "twinlog" / "divergent").iterdir())) == 1


async def test_a_wrong_name_changes_nothing(group):
    with Terminal() as terminal:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.run, group.namesrv, "reinit", "broker-a-1")
            await terminal.shows("type the group's name (broker-a)")
            terminal.type("broker-b\n")
        assert terminal.status == 4, terminal.shown
        assert "Nothing was changed." in terminal.shown
    assert group.slave.roles.member.role_state().whole


async def test_schemas(group):
    for command, title in (
        (("switchover",), "ChangeOutcome"),
        (("failover", "--dry-run"), "ChangeState"),
        (("rewind",), "RepairResult"),
        (("reinit", "--dry-run"), "RepairPlan"),
        (("history",), "History"),
    ):
        assert json.loads((await group.twinlog(*command, "-o", "schema")).stdout)["title"] == title


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5m", 90), ("2h", 7200), ("1 d", 86400)])
def test_durations(text, seconds):
    assert DURATION.convert(text, None, None) == seconds


def test_losses():
    assert LOSS.convert("unknown", None, None) == "unknown"
    assert LOSS.convert("4kB", None, None) == 4000


def test_moments():
    now = datetime(2026, 11, 22, 14, 30)
    assert moment_of("15:00", now) == datetime(2026, 11, 22, 15, 0)
    assert moment_of("3:00", now) == datetime(2026, 11, 23, 3, 0)
    assert moment_of("2026-11-22T23:00", now) == datetime(2026, 11, 22, 23, 0)
    assert AT.convert("off", None, None) == "off"
    for wrong in ("soon", "25:00", "2026-11-22T14:00"):
        with pytest.raises(ValueError):
            moment_of(wrong, now)


# ---- With a group secret, from a machine without a member


@pytest.fixture
async def secret_file(group, tmp_path, monkeypatch):
    """Both members have it, and take the test for another machine."""
    monkeypatch.setattr("twinlog.cluster.broker.processors.member_check.is_from_here", lambda _connection: False)
    secret = new_secret()
    write_secrets(tmp_path / "group-secret", (secret,))
    for broker in (group.master, group.slave):
        broker.secrets.secrets = (secret,)
    return tmp_path / "group-secret"


async def test_without_the_secret_roles_are_not_changed_and_the_option_is_named(group, secret_file):
    for command in (("switchover", "--yes"), ("pause",), ("resume",), ("reinit", "broker-a-1", "--yes")):
        refused = await group.twinlog(*command, ok=False)
        assert refused.exit_code == 4
        assert "takes no role changes from here: it requires its group's secret" in refused.stderr
        assert "--secret-file FILE" in refused.stderr
    await group.twinlog("list")  # Looking needs none.


async def test_the_secret_is_given_by_an_option_a_variable_or_a_context(group, secret_file, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    context = Context(name="prod", name_servers=(group.namesrv,), secret_file=secret_file)
    save_contexts(contexts_path(), Contexts().with_context(context))
    await group.twinlog("pause", "--secret-file", str(secret_file))
    await group.twinlog("resume", "--context", "prod")
    await group.twinlog("switchover", "--yes", ok=False)
    monkeypatch.setenv("TWINLOG_HA_SECRET_FILE", str(secret_file))
    done = await group.twinlog("switchover", "--yes", ok=False)
    assert done.exit_code in (0, 6), done.output
    assert group.slave.roles.member.is_serving


async def test_a_secret_that_does_not_fit_or_cannot_be_read_is_told(group, secret_file, tmp_path):
    write_secrets(tmp_path / "other", (other := new_secret(),))
    refused = await group.twinlog("pause", "--secret-file", str(tmp_path / "other"), ok=False)
    assert refused.exit_code == 4
    assert f"takes no role changes from here: the secret {other.id} is not known here" in refused.stderr
    assert "--secret-file FILE" in refused.stderr
    lost = await group.twinlog("pause", "--secret-file", str(tmp_path / "none"), ok=False)
    assert (lost.exit_code, "is not there" in lost.stderr) == (2, True)

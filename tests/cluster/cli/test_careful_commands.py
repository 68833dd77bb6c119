"""What commands that change something say, and how they end, when a broker is away or refuses."""

from functools import partial

import orjson
import pytest
import trio
from click.testing import CliRunner

from tests.cluster.cli.json_schema import violations
from tests.cluster.fake_cluster import A, B, FakeCluster, refused
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.cli.main import cli
from twinlog.cluster.user_errors import Failure


@pytest.fixture
async def fake(nursery):
    fake = FakeCluster()
    await fake.serve(nursery)
    return fake


async def twinlog(fake, *arguments):
    runner = CliRunner(env={"NAMESRV_ADDR": fake.namesrv})
    return await trio.to_thread.run_sync(partial(runner.invoke, cli, arguments))


async def test_a_topic_is_not_removed_while_it_is_not_known_who_reads_it(fake):
    fake.answers[B, 300] = refused()
    result = await twinlog(fake, "topic", "delete", "T", "--yes")
    assert (result.exit_code, fake.changed) == (4, [])
    assert "b did not report its consumers." in result.stderr
    assert (await twinlog(fake, "topic", "delete", "T", "--dry-run")).exit_code == 0
    assert (await twinlog(fake, "topic", "delete", "T", "--yes", "--although-read")).exit_code == 0
    assert (A, 215) in fake.changed


async def test_queues_are_not_hidden_while_it_is_not_known_what_they_hold(fake):
    fake.answers[B, 202] = refused()
    result = await twinlog(fake, "topic", "update", "T", "--queues", "1")
    assert (result.exit_code, fake.changed) == (2, [])
    assert "hides an unknown number of messages" in result.stderr


async def test_a_group_is_not_cloned_in_part(fake):
    fake.answers[B, 202] = refused()
    result = await twinlog(fake, "group", "clone", "G", "H", "--yes")
    assert (result.exit_code, fake.changed) == (4, [])
    assert "Nothing was changed, because b does not report how far groups are" in result.stderr


async def test_what_was_changed_before_a_broker_refused_is_told(fake):
    fake.answers[B, 17] = refused()
    result = await twinlog(fake, "topic", "update", "T", "--queues", "4")
    assert (result.exit_code, fake.changed) == (6, [(A, 17)])
    assert result.stderr.splitlines()[:4] == [
        "Error: Only a part was done.",
        "  Done: a.",
        "  Failed: b: You may not do that. No right.",
        "  See how it is now, and give the command for the rest.",
    ]


@pytest.mark.parametrize("command", [("topic", "update", "T", "--queues", "4"), ("group", "create", "G2")])
async def test_what_was_done_in_part_is_told_in_json(fake, command):
    """Status 6 with the same document as every failure: where it is done, where not, and why."""
    for code in (17, 200):
        fake.answers[B, code] = refused()
    result = await twinlog(fake, *command, "-o", "json")
    assert result.exit_code == 6
    found = orjson.loads(result.stdout)
    assert violations(found, schema_of(Failure)) == []
    assert (found["error"], found["exit_status"], found["done"]) == ("Only a part was done.", 6, ["a"])
    assert found["not_done"] == [{"where": "b", "why": "You may not do that. No right."}]
    assert found["next"] == "See how it is now, and give the command for the rest."


async def test_a_member_whose_access_control_refuses_is_told_in_one_line(fake):
    fake.answers[A, 20001] = refused()
    result = await twinlog(fake, "list")
    (line,) = [each for each in result.stdout.splitlines() if each.startswith("issue: a-0")]
    assert line.startswith("issue: a-0 does not let you ask it (no right). Give credentials with TWINLOG_ACCESS_KEY")
    assert "refusing" in result.stdout
    assert "Exception" not in result.output
    assert (await twinlog(fake, "check")).stdout.count("Exception") == 0

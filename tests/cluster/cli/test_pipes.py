"""Commands whose output nobody reads any more, as with `| head -1`."""

import os
from contextlib import redirect_stdout
from functools import partial

import pytest
import trio

from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.main import cli
from twinlog.cluster.client.client import Client


async def twinlog(cluster, *arguments):
    """Run a command; the other end of its stdout is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    run = partial(cli, [*arguments, "-n", cluster.namesrv], standalone_mode=False)
    with os.fdopen(writer, "w") as stdout, redirect_stdout(stdout):
        await trio.to_thread.run_sync(run)


async def messages_of(cluster, topic):
    async with Client(cluster.namesrv) as client:
        table = await client.api.topic_stats(cluster.master.address, topic)
    return sum(offsets.max_offset for offsets in table.values())


@pytest.mark.parametrize("fmt", ["pretty", "tsv", "json"])
async def test_messages_are_sent_although_nobody_reads_how(cluster, fmt):
    await twinlog(cluster, "send", "orders", "x", "--count", "5", "-o", fmt)
    assert await messages_of(cluster, "orders") == 5


async def test_what_was_sent_unsafely_is_told_although_nobody_reads_the_lines(lone_master):
    with pytest.raises(CliError, match="2 of 2 messages are stored, but on fewer members"):
        await twinlog(lone_master, "send", "orders", "x", "--count", "2")


async def test_a_change_that_nobody_hears_of_is_a_failure(cluster):
    with pytest.raises(CliError, match="The output was closed"):
        await twinlog(cluster, "topic", "create", "orders")


async def test_a_look_that_nobody_wants_any_more_is_none(cluster):
    await twinlog(cluster, "list")
    await twinlog(cluster, "topic", "create", "orders", "--dry-run")

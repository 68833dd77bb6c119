"""Progress of a group: offsets and heartbeats go to masters; nothing that fails there ends a query."""

import json

import pytest

from tests.cluster.pipeline.topics.fake_api import MASTER, QUEUE, SLAVE, FakeApi, Member
from twinlog.cluster.pipeline.topics.committing import GroupProgress
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError


class Query:
    """A group at one broker, and a clock that stands."""

    def __init__(self, **api):
        self.api, self.now, self.warnings = FakeApi(**{"members": {MASTER: Member(0, 9)}} | api), 0.0, []
        self.progress = GroupProgress("G", self.warnings.append, lambda: self.now)

    async def commit(self, offset):
        """Commit; returns the heartbeats that were sent meanwhile, and the new warnings."""
        beats, warned = len(self.api.beats), len(self.warnings)
        await self.progress.commit(self.api, {"b": self.api.group}, {QUEUE: offset})
        return [address for address, _ in self.api.beats[beats:]], self.warnings[warned:]


async def test_a_member_is_there_before_offsets_are(autojump_clock):
    """It only pulls, and subscribes nothing."""
    query = Query()
    assert await query.commit(5) == ([MASTER], [])
    assert query.api.committed == {(MASTER, QUEUE, "G"): 5}
    (consumer,) = json.loads(query.api.beats[0][1])["consumerDataSet"]
    assert (consumer["groupName"], consumer["consumeType"], consumer["messageModel"]) == (
        "G",
        "CONSUME_ACTIVELY",
        "CLUSTERING",
    )
    assert consumer["subscriptionDataSet"] == []


async def test_heartbeats_are_repeated_after_a_while_and_for_a_new_master(autojump_clock):
    """No batch without progress sends anything."""
    query = Query()
    query.api.members[SLAVE] = Member(0, 9)
    assert await query.commit(1) == ([MASTER], [])
    query.now = 29.0
    assert await query.commit(2) == ([], [])
    query.now = 31.0
    assert await query.commit(2) == ([], [])
    assert await query.commit(3) == ([MASTER], [])
    query.api.addresses = {0: SLAVE}
    assert await query.commit(4) == ([SLAVE], [])
    assert query.api.committed == {(MASTER, QUEUE, "G"): 3, (SLAVE, QUEUE, "G"): 4}


async def test_without_a_master_a_slave_gets_offsets_only(autojump_clock):
    query = Query(members={SLAVE: Member(0, 9)}, addresses={1: SLAVE})
    assert await query.commit(1) == ([], [])
    assert query.api.committed == {(SLAVE, QUEUE, "G"): 1}


async def test_a_group_that_others_use_needs_none(autojump_clock):
    query = Query(consumers=["10.0.0.1@77"])
    assert await query.commit(1) == ([], [])
    assert query.api.committed == {(MASTER, QUEUE, "G"): 1}


async def test_a_refused_heartbeat_is_told_once_and_offsets_are_committed(autojump_clock):
    query = Query(refusal=RequestError(ResponseCode.NO_PERMISSION, "the group is forbidden"))
    _, (warning,) = await query.commit(1)
    assert "mqadmin consumerProgress may not find the group G; its offsets are committed" in warning
    assert "may SUB the topic and the group" in warning
    query.now = 31.0
    assert await query.commit(2) == ([MASTER], [])
    assert query.api.committed == {(MASTER, QUEUE, "G"): 2}


@pytest.mark.parametrize(("addresses", "why"), [({0: MASTER}, "Connection refused"), ({}, "no member is registered")])
async def test_what_was_not_committed_is_tried_again(autojump_clock, addresses, why):
    query = Query(members={}, addresses=addresses)
    for _ in range(2):
        beats, (warning,) = await query.commit(5)
        assert beats == []
        assert warning.startswith("progress of the group G is not committed, the next batch tries again: ")
        assert why in warning
    query.api.members, query.api.addresses = {MASTER: Member(0, 9)}, {0: MASTER}
    assert await query.commit(5) == ([MASTER], [])
    assert query.api.committed == {(MASTER, QUEUE, "G"): 5}

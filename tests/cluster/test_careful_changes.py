"""Changes of topics, groups, offsets and configuration where a broker is away, or refuses."""

import pytest

from cluster.config_admin import ConfigAdmin
from cluster.consumption import SilentBrokersError
from cluster.group_admin import GroupAdmin
from cluster.offset_admin import First, OffsetAdmin
from cluster.remoting.codes import ResponseCode
from cluster.targets import NoMasterError
from cluster.topic_admin import TopicAdmin
from tests.cluster.fake_cluster import A_AND_SLAVE, A, B, FakeCluster, refused

# ---- A master is away: a slave would not do


async def test_offsets_are_stored_on_masters_only():
    cluster = FakeCluster(A_AND_SLAVE)
    offsets = OffsetAdmin(cluster.api)
    for prepare in (offsets.prepare_reset("G", "T", First()), offsets.prepare_clone("G", "H", ())):
        with pytest.raises(NoMasterError, match="b has no master"):
            await prepare
    plan = await offsets.prepare_reset("G", "T", First(), broker="a")
    assert {move.broker for move in (await offsets.apply(plan)).moves} == {"a"}
    assert cluster.changed == [(A, 15)] * 2


async def test_a_master_that_goes_after_the_plan_was_made_is_not_replaced_by_its_slave():
    cluster = FakeCluster()
    offsets = OffsetAdmin(cluster.api)
    plan = await offsets.prepare_reset("G", "T", First())
    cluster.groups = A_AND_SLAVE
    with pytest.raises(NoMasterError, match="b has no master"):
        await offsets.apply(plan)
    assert cluster.changed == []


async def test_all_masters_are_all_of_them():
    with pytest.raises(NoMasterError, match="b has no master"):
        await ConfigAdmin(FakeCluster(A_AND_SLAVE).api).prepare_set((), {"traceOn": "false"})


# ---- What is not known is not safe


@pytest.mark.parametrize(
    ("code", "answer"), [(43, refused()), (43, None), (201, None), (202, refused("not now")), (203, refused())]
)
async def test_a_place_is_not_moved_while_a_broker_does_not_tell_all(code, answer):
    cluster = FakeCluster(answers={(B, code): answer})
    offsets, groups = OffsetAdmin(cluster.api), GroupAdmin(cluster.api)
    for prepare in (offsets.prepare_clone("G", "H", ()), offsets.prepare_reset("G", "T", First(), broker="a")):
        with pytest.raises(SilentBrokersError, match="b does not tell"):
            await prepare
    if code != 201:  # Then it cannot be told whether the group is there.
        with pytest.raises(SilentBrokersError, match="b does not tell"):
            await groups.prepare_delete("G", with_offsets=True, with_dead_letters=False)
    assert (await groups.lag("G")).silent == ("b",)


async def test_offsets_in_a_topic_that_is_gone_stand_in_nobodys_way():
    gone = refused("topic[T] not exist", ResponseCode.TOPIC_NOT_EXIST)
    cluster = FakeCluster(answers={(B, 202): gone})
    plan = await OffsetAdmin(cluster.api).prepare_clone("G", "H", ())
    assert {move.broker for move in plan.moves} == {"a"}


async def test_a_broker_without_any_offsets_says_so_with_an_error():
    cluster = FakeCluster(answers={(B, 43): refused("No consumer offset in this broker, client: x, body size: 0")})
    plan = await OffsetAdmin(cluster.api).prepare_clone("G", "H", ())
    assert {move.broker for move in plan.moves} == {"a"}


@pytest.mark.parametrize("code", [300, 43, 203])
@pytest.mark.parametrize("answer", [refused(), None])
async def test_readers_that_a_broker_does_not_tell_are_not_none(code, answer):
    topics = TopicAdmin(FakeCluster(answers={(B, code): answer}, clients={A: [], B: ["c1"]}).api)
    plan = await topics.prepare_delete("T")
    assert plan.silent == ("b",)
    assert [(each.group, each.clients) for each in plan.consumers] == [("G", 0)]


async def test_messages_that_a_broker_does_not_count_are_not_none():
    cluster = FakeCluster(answers={(B, 202): None})
    topics = TopicAdmin(cluster.api)
    everywhere = {"write_queues": None, "perm": None, "brokers": (), "cluster": None}
    assert (await topics.prepare_update("T", read_queues=1, **everywhere)).hidden_messages is None
    assert (await topics.prepare_update("T", read_queues=2, **everywhere)).hidden_messages == 0
    assert (await topics.prepare_delete("T")).messages is None

"""Changes of topics, groups, offsets and configuration where a broker is away, or refuses."""

import pytest

from tests.cluster.fake_cluster import A_AND_SLAVE, A, B, FakeCluster, refused
from twinlog.cluster.admin.config import ConfigAdmin
from twinlog.cluster.admin.errors import PartlyDoneError
from twinlog.cluster.admin.groups import GroupAdmin
from twinlog.cluster.admin.offsets import First, OffsetAdmin
from twinlog.cluster.admin.topics import TopicAdmin
from twinlog.cluster.observe.consumption import SilentBrokersError
from twinlog.cluster.observe.gather import NoMasterError
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingConnectError

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
        with pytest.raises(SilentBrokersError, match="b does not report"):
            await prepare
    if code != 201:  # Then it cannot be told whether the group is there.
        with pytest.raises(SilentBrokersError, match="b does not report"):
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


# ---- A broker fails when others have been changed already


async def changed_topic(cluster):
    topics = TopicAdmin(cluster.api)
    plan = await topics.prepare_update("T", read_queues=4, write_queues=None, perm=None, brokers=(), cluster=None)
    await topics.apply(plan)


async def removed_topic(cluster):
    topics = TopicAdmin(cluster.api)
    await topics.delete(await topics.prepare_delete("T"))


async def changed_group(cluster):
    groups = GroupAdmin(cluster.api)
    await groups.apply(await groups.prepare_update("G", {}, (), None), {})


async def removed_group(cluster):
    groups = GroupAdmin(cluster.api)
    await groups.delete(await groups.prepare_delete("G", with_offsets=True, with_dead_letters=False))


async def cloned_group(cluster):
    offsets = OffsetAdmin(cluster.api)
    await offsets.apply(await offsets.prepare_clone("G", "H", ()))


async def moved_consumers(cluster):
    cluster.clients = {A: ["c1"], B: ["c1"]}
    offsets = OffsetAdmin(cluster.api)
    await offsets.apply(await offsets.prepare_reset("G", "T", First()))


async def changed_options(cluster):
    config = ConfigAdmin(cluster.api)
    await config.apply(await config.prepare_set((), {"traceOn": "false"}))


IN_PART = [
    (changed_topic, 17, ("a",), "b", ()),
    (removed_topic, 215, ("a",), "b", ("the name servers",)),
    (changed_group, 200, ("a",), "b", ()),
    (removed_group, 207, ("a", "a %RETRY%G"), "b", ("b %RETRY%G", "%RETRY%G on the name servers")),
    (removed_group, 215, ("a", "a %RETRY%G", "b"), "b %RETRY%G", ("%RETRY%G on the name servers",)),
    (cloned_group, 15, ("T a queue 0", "T a queue 1"), "T b queue 0", ("T b queue 1",)),
    (moved_consumers, 222, ("T a",), "T b", ()),
    (changed_options, 25, ("a",), "b", ()),
]


@pytest.mark.parametrize(("change", "code", "done", "failed", "not_tried"), IN_PART)
async def test_what_was_done_before_a_broker_failed_is_told(change, code, done, failed, not_tried):
    cluster = FakeCluster(answers={(B, code): None})
    with pytest.raises(PartlyDoneError) as caught:
        await change(cluster)
    assert (caught.value.done, caught.value.failed, caught.value.not_tried) == (done, failed, not_tried)
    assert isinstance(caught.value.why, RemotingConnectError)


@pytest.mark.parametrize(("change", "code"), [each[:2] for each in IN_PART])
async def test_where_nothing_was_done_it_is_a_failure(change, code):
    cluster = FakeCluster(answers={(A, each): None for each in (code, 207)})
    with pytest.raises(RemotingConnectError):
        await change(cluster)
    assert cluster.changed == []

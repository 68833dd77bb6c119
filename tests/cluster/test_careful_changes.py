"""Changes of topics, groups, offsets and configuration where a broker is away, or refuses."""

import pytest

from cluster.config_admin import ConfigAdmin
from cluster.offset_admin import First, OffsetAdmin
from cluster.targets import NoMasterError
from tests.cluster.fake_cluster import A_AND_SLAVE, A, FakeCluster

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

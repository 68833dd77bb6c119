"""A stream from a topic into files, while whatever takes part in it is killed: each queue offset is there once.

Executors, a worker, the driver, the brokers' master; a switchover and a failover; and a task so slow that a copy is started.
"""

from pathlib import Path

import pytest

from tests.spark_cluster.following import Following, readable
from tests.support.process_group import roles
from tests.support.process_group.roles import Traffic, in_thread
from tests.support.spark_cluster.output import check_same, rows
from tests.support.spark_cluster.standalone import Standalone


@pytest.mark.timeout(900)
async def test_each_offset_is_there_once_whatever_is_killed(cluster: Standalone, tmp_path: Path):
    with roles.running(tmp_path / "brokers") as group:
        stream = Following(cluster, group, tmp_path / "out")
        faults = (
            stream.kill_executor,
            stream.kill_worker,
            stream.be_slow,
            stream.kill_master,
            stream.switch_over,
        )
        traffic = Traffic(group.namesrv.address, pause_seconds=0.05)
        async with traffic.flowing(2):
            await traffic.more(20)
            await in_thread(stream.start)
            for fault in faults:
                await in_thread(fault)
                await traffic.more(5)
            await in_thread(stream.driver.kill)
            await traffic.more(20)
        await in_thread(stream.to_the_end)
        expected = await readable(group.namesrv.address)
        found = rows(stream.out / "rows")
        check_same(found, expected)
        assert traffic.acknowledged.keys() <= {row["value"] for row in found}

"""mqadmin 5.3.3's getSyncStateSet, which asks a controller, of a group whose record etcd keeps."""

import re
from pathlib import Path

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.process_group import jars
from tests.support.process_group.etcd import DEBIAN, EtcdCluster
from tests.support.process_group.roles import running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(bool(DEBIAN.missing), reason=DEBIAN.missing)
SETTINGS = {"flushDiskType": "SYNC_FLUSH", "haMaxTimeSlaveNotCatchup": "3000"}


def replicas(out: str, kind: str) -> list[str]:
    """Broker ids."""
    return re.findall(rf"^{kind}:\s+ReplicaIdentity\{{brokerName='broker-a', brokerId=(\d+), .*", out, re.MULTILINE)


def test_get_sync_state_set_answers_from_the_record(tmp_path: Path) -> None:
    """Any member may be named as the controller: a slave says who leads."""
    with (
        EtcdCluster(tmp_path / "etcd") as cluster,
        running(tmp_path, **SETTINGS, etcdEndpoints=cluster.endpoints[0]) as group,
        JavaClient(tmp_path / "client-5", version=jars.VERSION_5) as client,
    ):
        master, slave = group.members
        wait_for(lambda: all(status(each)["etcd"]["why"] is None for each in group.members), "members see etcd")
        group.twinlog("auto-failover", "etcd")
        wait_for(lambda: len(status(slave)["etcd"]["inSync"]) == 2, "the record in etcd")
        tool = Tool(client, group.namesrv.address)
        out, err = tool.both("getSyncStateSet", "-a", slave.address, "-b", "broker-a")
        assert "Exception" not in err, err
        assert f"#MasterAddr\t{master.address}" in out
        assert "#SyncStateSetNums\t2" in out
        assert replicas(out, "InSyncReplica") == ["0", "1"]
        assert replicas(out, "NotInSyncReplica") == []
        assert out.count("alive=true") == 2
        slave.kill()
        wait_for(lambda: len(status(master)["etcd"]["inSync"]) == 1, "the set shrinks", timeout_s=30)
        out, _ = tool.both("getSyncStateSet", "-a", master.address, "-c", "DefaultCluster", "-n", group.namesrv.address)
        assert "#SyncStateSetNums\t1" in out
        assert replicas(out, "NotInSyncReplica") == ["1"]

"""What people see of a pair whose record a real etcd keeps."""

import json
from collections.abc import Iterator

import pytest

from tests.support.process_group.etcd import DEBIAN, EtcdCluster
from tests.support.process_group.roles import Group, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(DEBIAN.missing), reason=DEBIAN.missing),
]
SETTINGS = {"flushDiskType": "SYNC_FLUSH", "haMaxTimeSlaveNotCatchup": "3000", "inSyncReplicas": "2"}


@pytest.fixture
def pair(tmp_path) -> Iterator[tuple[Group, EtcdCluster]]:
    with (
        EtcdCluster(tmp_path / "etcd") as cluster,
        running(tmp_path, **SETTINGS, etcdEndpoints=cluster.endpoints[0]) as group,
    ):
        wait_for(lambda: all(status(each)["etcd"]["why"] is None for each in group.members), "members see etcd")
        group.twinlog("auto-failover", "etcd")
        wait_for(lambda: "2 of 2 in sync" in listed(group), "the record in etcd")
        yield group, cluster


def listed(group: Group) -> str:
    return group.twinlog("list").stdout


def findings(group: Group, command: str) -> dict[str, dict]:
    """By cause."""
    found = json.loads(group.twinlog(command, "-o", "json", status=None).stdout)["findings"]
    return {each["cause"]: each for each in found}


def explained(group: Group, member: str) -> dict[str, str]:
    sentences = json.loads(group.twinlog("explain", member, "-o", "json").stdout)["sentences"]
    return {each["topic"]: each["text"] for each in sentences}


def test_one_copy_and_an_outage_of_etcd_are_told_by_every_command(pair):
    group, cluster = pair
    second = group.members[1]
    sound = findings(group, "doctor")
    assert sound["etcd: one endpoint"]["what"].startswith("broker-a-0, broker-a-1 to http://127.0.0.1:")
    assert [cause for cause in sound if "etcd" in cause or "copy" in cause] == ["etcd: one endpoint"]

    second.kill()
    wait_for(lambda: "one copy: broker-a-0 alone is in sync, of 2 members" in listed(group), "one copy")
    assert "SEND_OK is L1 sync flush, one copy" in listed(group)
    found = findings(group, "check")["one copy"]
    assert found["level"] == "critical"
    assert "broker-a-1 did not hold the whole log for 3 s" in found["what"]
    told = explained(group, "broker-a-0")
    assert "1 of the one in sync must hold a message, 1 must promise" in told["group"]
    assert told["etcd"].endswith("/twinlog/: it answers")

    cluster.kill()
    wait_for(lambda: "no member can rely on etcd since" in listed(group), "etcd is seen to be away")
    assert findings(group, "check")["etcd cannot be relied on"]["level"] == "warning"
    wait_for(lambda: "etcd: no connection" in findings(group, "doctor"), "what was found 5 s ago is asked again")
    assert findings(group, "doctor")["etcd: no connection"]["level"] == "critical"
    assert "no connection" in explained(group, "broker-a-0")["etcd"]

    cluster.start()
    second.start()
    wait_for(lambda: "2 of 2 in sync: broker-a-0, broker-a-1" in listed(group), "both are in sync")
    assert "holds the whole log again" in explained(group, "broker-a-0")["record"]
    wait_for(lambda: "etcd: no connection" not in findings(group, "doctor"), "etcd answers")

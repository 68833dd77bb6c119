"""Directories on which nothing starts, and a copy that becomes a member, on real processes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.process_group.process import ProcessFailedError
from tests.support.process_group.roles import RoleBroker, running

pytestmark = pytest.mark.timeout(120)


def refused(broker: RoleBroker, why: str) -> None:
    """It ends before it serves, says why on its last line and what to do, and leaves who it is and what it promised."""
    files = [broker.store / "twinlog" / name for name in ("member", "role", "epochs")]
    before = [file.read_bytes() for file in files if file.exists()]
    with pytest.raises(ProcessFailedError, match="ended with 1 before its ready line"):
        broker.start()
    said = broker.tail(1)
    assert why in said
    assert "Next: " in said
    assert [file.read_bytes() for file in files if file.exists()] == before


def member_id(store: Path) -> str:
    return str(json.loads((store / "twinlog/member").read_text().partition("\n")[2])["id"])


def test_nothing_starts_on_a_directory_of_another_group_or_of_two_members(tmp_path):
    with running(tmp_path) as group:
        first, second = group.members
        second.stop()
        conf = second.conf.read_text()
        second.conf.write_text(conf.replace("brokerName=broker-a", "brokerName=broker-b"))
        refused(second, "a member of brokerName broker-a, brokerClusterName DefaultCluster")
        second.conf.write_text(conf.replace("brokerClusterName=DefaultCluster", "brokerClusterName=Other"))
        refused(second, "the configuration says brokerName broker-a, brokerClusterName Other")
        second.conf.write_text(conf)
        role = second.store / "twinlog/role"
        own = role.read_bytes()
        shutil.copy(first.store / "twinlog/role", role)
        refused(second, f"is of the member {member_id(second.store)}")
        verified = group.twinlog("log", "verify", str(second.store), status=1)
        assert "one of the two files comes from another directory" in verified.stdout
        role.write_bytes(own)
        second.start()
        group.wait_healthy()


def test_a_copy_becomes_a_new_member(tmp_path):
    with running(tmp_path) as group:
        first, second = group.members
        group.twinlog("log", "new-member", str(second.store), "--yes", status=4)  # It runs.
        second.stop()
        third = RoleBroker(tmp_path / "m2", group.namesrv.address, 2, {})
        shutil.copytree(second.store, third.store)
        second.start()
        group.wait_healthy()
        group.twinlog("log", "new-member", str(third.store), "--yes")
        with third:
            group.twinlog("wait", "healthy", "members=3", f"{third.label}=streaming", "--timeout", "30")
            listed = group.listed()
            stores = {each.label: each.store for each in (first, second, third)}
            assert {name: listed[name]["member_id"] for name in stores} == {
                name: member_id(store) for name, store in stores.items()
            }
            assert len({each["member_id"] for each in listed.values()}) == 3
            assert listed[third.label]["made_address"] == third.address
            assert listed[third.label]["made_ms"] > 0

"""Directories on which nothing starts, and a copy that becomes a member, on real processes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.process import ProcessFailedError
from tests.support.process_group.roles import TOPIC, RoleBroker, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

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


def test_a_member_whose_file_was_lost_takes_its_place_again(tmp_path):
    """Nothing tells it from a copy, so that a person has to: it says how."""
    with running(tmp_path) as group:
        first, second = group.members
        group.twinlog("send", TOPIC, "one")
        id = member_id(second.store)
        second.stop()
        (second.store / "twinlog/member").unlink()
        second.start()
        command = f"twinlog log new-member {second.store}"
        second.wait_until(lambda: command in second.log.read_text(), "what to do")
        wait_for(lambda: "was lost" in (status(second)["roleWhy"] or ""), "that it is not taken for the member")
        group.twinlog("send", TOPIC, "two", status=None)
        second.stop()
        group.twinlog(*command.split()[1:], "--yes")
        assert member_id(second.store) != id
        second.start()
        group.wait_healthy()
        assert member_id(second.store) == id, "at its address, and under its name"
        assert first.recorded()[second.label] == (id, second.address)
        group.twinlog("send", TOPIC, "three")
        wait_for_same_commitlog(first.commit_log, second.commit_log)

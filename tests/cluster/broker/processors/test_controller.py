"""The in-sync set as RocketMQ 5.3.3's mqadmin asks a controller for it."""

import orjson
import pytest
from attrs import evolve

from tests.cluster.broker.helpers import Client, make_broker, opened
from twinlog.ha.election.group_record import next_version
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

SLAVE = GroupMember(address="10.0.0.2:10911", ha_address="", broker_id=1, name="broker-a-1", id="m2")
OTHER = GroupMember(address="10.0.0.3:10911", ha_address="", broker_id=2, name="broker-a-2", id="m3")


async def with_record(client: Client, **changes) -> GroupRecord:
    """The broker is in a group whose record etcd keeps."""
    client.broker._load_role()
    member = client.broker.roles.member
    me = evolve(member.me(), broker_id=0)
    record = GroupRecord(
        version=7,
        epoch=3,
        members=(me, SLAVE, OTHER),
        acks_needed=2,
        master_role=BrokerRole.SYNC_MASTER,
        auto_failover="etcd",
        in_sync=(me.id, SLAVE.id),
    )
    record = evolve(record, **changes)
    await member.durable.save(evolve(member.state_or_first(), group=record))
    return record


async def test_the_set_as_mqadmin_reads_it(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        await with_record(client)
        own = client.broker.roles.member.address
        told = client.ask(1005)
        assert (told.ext["controllerLeaderAddress"], told.ext["group"], told.ext["isLeader"]) == (
            own,
            "broker-a",
            "true",
        )
        table = orjson.loads(client.ask(1006, b'["broker-a", "broker-b"]').body)["replicasInfoTable"]
        found = table.pop("broker-a")
        assert table == {}, "of other groups this broker knows nothing"
        assert [(each["brokerId"], each["alive"]) for each in found["inSyncReplicas"]] == [(0, True), (1, False)]
        assert [each["brokerAddress"] for each in found["notInSyncReplicas"]] == [OTHER.address]
        assert (found["masterAddress"], found["masterBrokerId"]) == (own, 0)
        assert (found["masterEpoch"], found["syncStateSetEpoch"]) == (3, 7)


async def test_a_version_that_is_not_in_force_is_not_told(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        record = await with_record(client)
        member = client.broker.roles.member
        alone = next_version(record, in_sync=(member.own,))
        await member.durable.save(evolve(member.state_or_first(), group=alone, before=record))
        found = orjson.loads(client.ask(1006, b'["broker-a"]').body)["replicasInfoTable"]["broker-a"]
        assert (found["syncStateSetEpoch"], len(found["inSyncReplicas"])) == (7, 2)


@pytest.mark.parametrize("code", [1005, 1006])
async def test_without_etcd_there_is_no_controller(tmp_path, code):
    async with opened(make_broker(tmp_path)) as client:
        for mode in (None, "members"):
            await with_record(client, auto_failover=mode, in_sync=())
            response = client.ask(code, b"[]")
            assert response.code == 3
            assert "there is no controller; roles change with twinlog switchover" in response.remark


async def test_a_body_that_is_no_list(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        await with_record(client)
        assert "not JSON" in client.ask(1006, b"{").remark
        assert "not a list" in client.ask(1006, b"{}").remark

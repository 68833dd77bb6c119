"""What a broker tells of itself for metrics, without a network."""

import errno
import os

import pytest
import trio
from attrs import evolve

from tests.cluster.broker.helpers import make_broker, opened, put
from tests.support.group.kept import EtcdModel, ModelKeeper
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.config.group_secret import new_secret
from twinlog.cluster.metrics import broker_snapshot, expose
from twinlog.ha.election.group_record import in_force, next_version
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

TEXT = "text/plain"


def samples(broker, name: str) -> dict[str, float]:
    """The samples of a family by their labels, as they are scraped."""
    body, _ = expose(broker_snapshot(broker), TEXT)
    lines = [line for line in body.decode().splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return {line.removeprefix(name).rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def of(broker, name: str, **labels: str) -> list[float]:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [value for key, value in samples(broker, name).items() if all(each in key for each in wanted)]


async def test_messages_are_counted_by_topic(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        assert samples(broker, "rocketmq_messages_in_total") == {}
        for number in range(5):
            put(broker, "T1", queue_id=number % 2)
        put(broker, "SELF_TEST_TOPIC")
        node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        assert of(broker, "rocketmq_messages_in_total", **node, topic="T1", is_system="false") == [5]
        assert of(broker, "rocketmq_messages_in_total", **node, topic="SELF_TEST_TOPIC", is_system="true") == [1]
        (size,) = of(broker, "rocketmq_throughput_in_total", topic="T1")
        assert size == pytest.approx(broker.store.max_offset * 5 / 6, rel=0.05)


async def test_a_slave_counts_no_messages_as_its_own(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        put(client.broker)
    async with opened(make_broker(tmp_path, role=BrokerRole.SLAVE)) as client:
        assert samples(client.broker, "rocketmq_messages_in_total") == {}
        assert of(client.broker, "rocketmq_ha_role_info", role="slave") == [1]
        assert of(client.broker, "rocketmq_ha_role_info", role="master") == [0]
        assert of(client.broker, "rocketmq_ha_replica_state", state="without master") == [1]


async def test_a_member_says_who_it_is(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        assert samples(client.broker, "rocketmq_ha_member_info") == {}, "it has not started yet"
        client.broker._load_role()
        id = client.broker.roles.member.own
        assert of(client.broker, "rocketmq_ha_member_info", member_id=id, address="127.0.0.1:10911") == [1]
        status = client.broker.status.member()
        assert (status.member_id, status.made_address) == (id, "127.0.0.1:10911")
        assert status.made_ms


async def test_a_member_says_which_secrets_it_has(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        assert samples(client.broker, "rocketmq_ha_secret_info") == {}
        status = client.broker.status.member()
        assert (status.secret_ids, status.secret_required) == ((), None)
        signs, accepted = client.broker.secrets.secrets = (new_secret(), new_secret())
        assert of(client.broker, "rocketmq_ha_secret_info", secret_id=signs.id, use="signs") == [1]
        assert of(client.broker, "rocketmq_ha_secret_info", secret_id=accepted.id, use="accepts") == [1]
        status = client.broker.status.member()
        assert (status.secret_ids, status.secret_required) == ((signs.id, accepted.id), True)


async def test_a_group_whose_record_etcd_keeps(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        names = [f"rocketmq_ha_{name}" for name in ("in_sync_set_members", "in_sync_set_version", "one_copy")]
        changed = "rocketmq_ha_in_sync_set_changed_seconds"
        assert [samples(broker, name) for name in (*names, changed, "rocketmq_ha_etcd_usable")] == [{}] * 5
        broker._load_role()
        member, outside = broker.roles.member, broker.roles.outside
        others = [GroupMember(address=f"10.0.0.{n}:10911", ha_address="", broker_id=n, name=f"b-{n}") for n in (1, 2)]
        everybody = tuple(each.id for each in (member.me(), *others))
        record = GroupRecord(
            version=7,
            members=(member.me(), *others),
            acks_needed=2,
            master_role=BrokerRole.SYNC_MASTER,
            auto_failover="etcd",
            in_sync=everybody,
        )
        outside.keeper = ModelKeeper(EtcdModel(record=record, revision=1))
        await member.durable.save(evolve(member.state_or_first(), group=record))
        assert of(broker, "rocketmq_ha_etcd_usable", replica="broker-a-0") == [0], "it was not asked yet"
        await outside.read()
        assert of(broker, "rocketmq_ha_etcd_usable") == [1]
        assert [of(broker, name) for name in names] == [[3], [7], [0]]
        assert samples(broker, changed) == {}, "no change was seen"
        alone = next_version(record, in_sync=(member.own,))
        await member.durable.save(evolve(member.state_or_first(), group=alone, before=record))
        assert [of(broker, name) for name in names] == [[3], [7], [0]], "not in force yet"
        outside.keeper.model.record = in_force(alone)
        await outside.read()
        await member.durable.save(evolve(member.state_or_first(), group=in_force(alone), before=None))
        assert [of(broker, name) for name in names] == [[1], [8], [1]]
        assert 0 <= of(broker, changed)[0] < 30


async def test_lag_of_a_group_is_what_it_did_not_consume(tmp_path):
    """Fetched messages are in flight until they are reported; the age is that of the oldest one."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        for number in range(10):
            put(broker, "T1", queue_id=number % 2)
        broker.tables.offsets.commit("G1", "T1", 0, 2)
        broker.tables.offsets.commit("G1", "T1", 1, 5)
        assert of(broker, "rocketmq_consumer_lag_messages", consumer_group="G1") == [3]
        assert of(broker, "rocketmq_consumer_ready_messages", consumer_group="G1") == [3]
        broker.stats.group_get("G1", "T1", 0, 2, 200, 0, 4)
        assert of(broker, "rocketmq_consumer_inflight_messages", consumer_group="G1") == [2]
        assert of(broker, "rocketmq_consumer_ready_messages", consumer_group="G1") == [1]
        (age,) = of(broker, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="G1")
        assert 0 <= age < 60_000
        broker.tables.offsets.commit("G1", "T1", 0, 5)
        assert of(broker, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="G1") == [0]
        assert of(broker, "rocketmq_messages_out_total", consumer_group="G1", topic="T1", is_retry="false") == [2]


async def test_the_age_of_the_oldest_waiting_message_grows(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        put(broker, "T1")
        broker.tables.offsets.commit("G1", "T1", 0, 0)
        (before,) = of(broker, "rocketmq_consumer_lag_latency_milliseconds")
        await trio.sleep(0.1)
        (after,) = of(broker, "rocketmq_consumer_lag_latency_milliseconds")
        assert 80 <= after - before < 30_000
        assert of(broker, "rocketmq_storage_message_reserve_time_milliseconds")[0] >= after


async def test_dead_letters_are_counted_for_the_topic_they_came_from(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        result = put(broker, "T1")
        broker.tables.groups.update(SubscriptionGroupConfig(name="G1", retry_times_max=0))
        client.ask(36, offset=result.phy_offset, group="G1", delayLevel=0)
        assert of(broker, "rocketmq_send_to_dlq_messages_total", topic="T1", consumer_group="G1") == [1]


async def test_a_disk_that_took_nothing_shows(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        assert of(client.broker, "rocketmq_storage_readonly") == [0]
        client.broker.store.fail("a test")
        assert of(client.broker, "rocketmq_storage_readonly") == [1]


async def test_the_points_of_a_log(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        end = put(broker).end_offset
        for point, offset in ("min", 0), ("written", end), ("flushed", 0), ("confirmed", end):
            assert of(broker, "rocketmq_ha_offset_bytes", point=point, replica="broker-a-0") == [offset]
        assert of(broker, "rocketmq_storage_flush_behind_bytes") == [end]


async def test_a_synchronous_master_counts_waits_from_zero(tmp_path):
    """Prometheus sees no growth of a counter that begins above 0."""
    async with opened(make_broker(tmp_path, role=BrokerRole.SYNC_MASTER)) as client:
        outcomes = ("confirmed", "timeout", "not_available")
        for outcome in outcomes:
            assert of(client.broker, "rocketmq_ha_ack_wait_seconds_count", policy="2", outcome=outcome) == [0]
        assert of(client.broker, "rocketmq_ha_acks_configured") == [2]
        assert of(client.broker, "rocketmq_ha_in_sync_members") == [1]
    async with opened(make_broker(tmp_path)) as client:
        assert samples(client.broker, "rocketmq_ha_ack_wait_seconds_count") == {}, "nobody waits here"


async def test_a_message_on_a_cold_page_is_not_waited_for(tmp_path, monkeypatch):
    """The kernel is asked for what it has in memory; a disk that answers late costs an age, never a stall."""
    asked = []

    def cold(_fd, _buffers, _offset, flags=0):
        asked.append(flags)
        raise BlockingIOError(errno.EAGAIN, "not in memory")

    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        put(broker, "T1")
        broker.tables.offsets.commit("G1", "T1", 0, 0)
        monkeypatch.setattr(os, "preadv", cold)
        assert of(broker, "rocketmq_consumer_lag_latency_milliseconds") == []
        assert of(broker, "rocketmq_consumer_lag_messages", consumer_group="G1") == [1]
        assert set(asked) == {os.RWF_NOWAIT}
        monkeypatch.undo()
        assert len(of(broker, "rocketmq_consumer_lag_latency_milliseconds")) == 1

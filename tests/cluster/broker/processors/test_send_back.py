"""36: what becomes of messages that a consumer could not consume."""

from pathlib import Path

import pytest

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import Parts, make_parts
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import decode_message


def make_send_back(root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, **options: object) -> Parts:
    """Parts with the processor of messages that are sent back."""
    parts = make_parts(root, role, **options)
    return parts.serve(parts.send_back())


def newest(broker, topic, queue_id=0):
    broker.store.dispatch_pending()
    queue = broker.store.queue(topic, queue_id)
    return decode_message(broker.store.message_at(queue.unit(queue.max_offset - 1).phy_offset))


async def test_the_first_retry_waits_at_level_3(tmp_path):
    """With its history in the properties; the retry topic is the one it will be delivered to."""
    async with opened(make_send_back(tmp_path)) as client:
        old = put(client.broker, tags="TagA")
        message_id = decode_message(client.broker.store.message_at(old.phy_offset)).message_id
        assert client.ask(36, offset=old.phy_offset, group="G", delayLevel=0, maxReconsumeTimes=16).code == 0
        copy = newest(client.broker, "SCHEDULE_TOPIC_XXXX", 2)
        assert (copy.body, copy.reconsume_times) == (b"hello", 1)
        assert copy.properties == {
            "TAGS": "TagA",
            "UNIQ_KEY": "id",
            "RETRY_TOPIC": "T1",
            "ORIGIN_MESSAGE_ID": message_id,
            "WAIT": "false",
            "DELAY": "3",
            "REAL_TOPIC": "%RETRY%G",
            "REAL_QID": "0",
        }
        assert client.broker.tables.topics.select("%RETRY%G") is not None


@pytest.mark.parametrize(("level", "times", "queue_id"), [(0, 2, 4), (5, 2, 4), (0, 40, 17)])
async def test_the_delay_grows_with_the_tries_unless_the_consumer_chooses(tmp_path, level, times, queue_id):
    async with opened(make_send_back(tmp_path)) as client:
        old = put(client.broker, reconsume_times=times)
        assert client.ask(36, offset=old.phy_offset, group="G", delayLevel=level, maxReconsumeTimes=99).code == 0
        assert newest(client.broker, "SCHEDULE_TOPIC_XXXX", queue_id).reconsume_times == times + 1


@pytest.mark.parametrize(
    ("times", "fields"), [(16, {}), (3, {"maxReconsumeTimes": 3}), (0, {"delayLevel": -1, "maxReconsumeTimes": 16})]
)
async def test_what_was_tried_often_enough_goes_to_the_dead_letters(tmp_path, times, fields):
    async with opened(make_send_back(tmp_path)) as client:
        old = put(client.broker, reconsume_times=times, tags="TagA")
        assert client.ask(36, **{"offset": old.phy_offset, "group": "G", "delayLevel": 0, **fields}).code == 0
        copy = newest(client.broker, "%DLQ%G")
        assert copy.properties["DELAY"] == "0"
        assert copy.properties["RETRY_TOPIC"] == "T1"
        assert client.broker.store.queue("%DLQ%G", 0).unit(0).tags_code == 2598919


async def test_a_group_may_want_no_retries(tmp_path):
    async with opened(make_send_back(tmp_path)) as client:
        client.broker.tables.groups.update(SubscriptionGroupConfig(name="G", retry_queues=0))
        old = put(client.broker)
        assert client.ask(36, offset=old.phy_offset, group="G", delayLevel=0).code == 0
        assert client.broker.store.max_offset == old.end_offset


async def test_what_cannot_be_sent_back_is_said(tmp_path):
    async with opened(make_send_back(tmp_path, auto_create_subscription_group=False)) as client:
        broker = client.broker
        assert client.ask(36, offset=0, group="G", delayLevel=0).code == 26
        broker.tables.groups.update(SubscriptionGroupConfig(name="G"))
        reply = client.ask(36, offset=77, group="G", delayLevel=0)
        assert (reply.code, reply.remark) == (1, "look message by offset failed, 77")
        old = put(broker)
        broker.tables.topics.update(TopicConfig("%RETRY%G", 1, 1, perm=4))
        assert client.ask(36, offset=old.phy_offset, group="G", delayLevel=0).code == 16


async def test_a_slave_takes_nothing_back(tmp_path):
    async with opened(make_send_back(tmp_path)) as client:
        put(client.broker)
    async with opened(make_send_back(tmp_path, BrokerRole.SLAVE)) as client:
        reply = client.ask(36, offset=0, group="G", delayLevel=0)
        assert (reply.code, reply.remark) == (1, "SERVICE_NOT_AVAILABLE")

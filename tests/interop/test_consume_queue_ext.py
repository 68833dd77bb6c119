"""A store that the real 4.9.7 wrote with enableConsumeQueueExt: tags codes lie in files of their own."""

import trio

from tests.store.records import put_message
from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.rocketmq import Broker
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue_ext import is_ext_address
from twinlog.store.record.message import decode_message
from twinlog.store.record.properties import tags_code

SETTINGS = {**TEST_SETTINGS, "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2048"}
TOPIC, TAGS, COUNT = "extended", ("red", "grün", "blue"), 600


def test_tags_are_found_in_the_extension(real_namesrv, root):
    """Over several files of it. What we add has plain tags codes, and RocketMQ reads on."""
    namesrv = real_namesrv.address
    with JavaClient(root / "client") as client:
        with Broker(root / "master", namesrv, settings=SETTINGS) as broker:
            create_topic(broker.address, TOPIC, queues=2)
            producer = client.producer("producers", namesrv)
            sent = producer.send(TOPIC, COUNT, tags=TAGS, threads=4)
            assert all(message.ok for message in sent)
            producer.shutdown()
            broker.stop()
        check_with_ours(root / "master" / "store")
        with Broker(root / "master", namesrv, settings=SETTINGS) as broker:
            consumer = client.consumer("consumers", namesrv, TOPIC, expression="grün")
            consumed = consumer.consumed(COUNT // 3 + 1)
            assert len(consumed) == COUNT // 3 + 1
            assert {message.tags for message in consumed} == {"grün"}
            broker.stop()


def check_with_ours(root):
    assert len(list((root / "consumequeue_ext" / TOPIC / "0").iterdir())) > 2
    sizes = {
        "mapped_file_size_commit_log": int(TEST_SETTINGS["mappedFileSizeCommitLog"]),
        "mapped_file_size_consume_queue": int(TEST_SETTINGS["mappedFileSizeConsumeQueue"]),
    }
    store = MessageStore(StoreConfig(root=root, **sizes))
    store.load()
    found = []
    for queue_id in range(2):
        queue, offset = store.queue(TOPIC, queue_id), 0
        for number in range(queue.max_offset):
            unit = queue.unit(number)
            assert is_ext_address(unit.tags_code)
            message = decode_message(store.message_at(unit.phy_offset))
            extension = queue.ext.unit(unit.tags_code)
            assert extension.tags_code == tags_code(message.properties["TAGS"])
            assert extension.store_timestamp == message.store_timestamp
        while offset < queue.max_offset:
            result = store.get_message(TOPIC, queue_id, offset, 32, frozenset({tags_code("grün")}))
            data = b"".join(result.buffers)
            while data:
                message = decode_message(data)
                found.append(message.properties["TAGS"])
                data = data[message.size :]
            offset = result.next_offset
    assert found == ["grün"] * (COUNT // 3)
    put_one(store)
    trio.run(store.close)


def put_one(store):
    store.put([put_message(TOPIC, b"ours", properties="TAGS\x01grün\x02UNIQ_KEY\x01ours".encode())])
    store.dispatch_pending()
    queue = store.queue(TOPIC, 0)
    assert queue.unit(queue.max_offset - 1).tags_code == tags_code("grün")

"""The real Java client finds messages by key, by unique key and by the place where they lie."""

from pathlib import Path

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Reader
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.waiting import wait_for

INDEX_SETTINGS = {"maxHashSlotNum": "100", "maxIndexNum": "400"}  # 900 keys take three files.


def test_messages_are_found_by_key_and_by_id(root: Path) -> None:
    """DefaultMQPullConsumer.queryMessage and viewMessage, which compare keys, for what the broker found by hash."""
    settings = TEST_SETTINGS | INDEX_SETTINGS
    with (
        twinlog.Up(root / "up", slaves=0, sync=False, settings=settings) as up,
        JavaClient(root / "client") as client,
    ):
        create_topic(up.address(0), "Orders", queues=2)
        sent = client.producer("shop", up.namesrv).send("Orders", 300, threads=2, keys="schlüssel-{i} all")
        assert all(message.ok for message in sent)
        index = up.commit_log(0).parent / "index"
        wait_for(lambda: len(list(index.glob("*"))) == 3, "the third file of the index")
        reader = Reader(client, up.namesrv, "broker-a")
        for message in sent[::23]:
            (by_key,) = reader.by_key("Orders", f"schlüssel-{message.number}")
            assert by_key.msg_id == message.msg_id
            assert reader.by_id("Orders", message.msg_id).commit_log_offset == message.commit_log_offset
            assert message.offset_msg_id is not None
            assert reader.by_id("Orders", message.offset_msg_id).msg_id == message.msg_id
        newest = sorted(message.commit_log_offset for message in sent)[-64:]
        assert [message.commit_log_offset for message in reader.by_key("Orders", "all")] == newest
        assert reader.by_key("Orders", "nobody's") == []

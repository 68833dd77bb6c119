"""A store to get messages from, and what was got."""

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

LOG_FILE, QUEUE_FILE = 1 << 16, 200  # Ten units.


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.ms = 1000

    def __call__(self):
        return self.ms


def open_store(root, *, now_ms=None, **options):
    sizes = {"mapped_file_size_commit_log": LOG_FILE, "mapped_file_size_consume_queue": QUEUE_FILE}
    store = MessageStore(StoreConfig(root=root, **{**sizes, **options}), StoreHooks(now_ms=now_ms or Clock()))
    store.load()
    return store


def fill(store, count, *, topic="T1", tags=(), body=b"hello", **more):
    """Put `count` messages with the tags in turn."""
    for number in range(count):
        properties = f"TAGS\x01{tags[number % len(tags)]}".encode() if tags else b""
        store.put([put_message(topic, body, properties=properties, **more)])
    store.dispatch_pending()


def messages(result):
    data, found = b"".join(result.buffers), []
    while data:
        found.append(decode_message(data))
        data = data[found[-1].size :]
    assert len(found) == result.message_count
    assert sum(message.size for message in found) == result.size
    return found


def offsets(result):
    return [message.queue_offset for message in messages(result)]

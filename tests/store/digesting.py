"""A store whose log is filled and digested."""

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore

FILE_SIZE = 100_000  # No multiple of a block: blocks lie across files.


def opened(root):
    store = MessageStore(StoreConfig(root=root, mapped_file_size_commit_log=FILE_SIZE), StoreHooks(now_ms=lambda: 1000))
    store.load()
    return store


def fill(store, size, *, body=b"x" * 3000):
    """Put messages until the log has grown by `size` bytes."""
    end = store.max_offset + size
    while store.max_offset < end:
        store.put([put_message(body=body)])
    store.dispatch_pending()


async def follow(store):
    while await store.digest.advance():
        pass

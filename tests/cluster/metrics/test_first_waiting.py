"""When the message was stored that a group needs next."""

import trio

from tests.store.records import put_message
from twinlog.cluster.metrics.broker import stored_ms
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore


async def test_of_a_message_whose_unit_the_disk_does_not_have_yet(tmp_path, nursery, autojump_clock):
    store = MessageStore(
        StoreConfig(root=tmp_path, mapped_file_size_commit_log=1 << 20), StoreHooks(now_ms=lambda: 1_700_000_000_000)
    )
    store.load()
    await nursery.start(store.run)
    await trio.sleep(0.001)
    store.put([put_message()])
    store.dispatch_pending()
    queue = store.queue("T1", 0)
    assert queue.files.files[-1].late_size == 20
    assert stored_ms(store, queue, 0) == 1_700_000_000_000
    await trio.sleep(0.03)
    assert queue.files.files[-1].late_size == 0
    assert stored_ms(store, queue, 0) == 1_700_000_000_000
    assert stored_ms(store, queue, 1) is None

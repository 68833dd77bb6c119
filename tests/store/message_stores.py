"""Whole stores with small files."""

import time

import trio
import trio.testing

from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore

FILE_SIZE = 1 << 16


def make(root, **options):
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 200}
    return MessageStore(StoreConfig(root=root, **{**sizes, **options}))


def opened(root, **options):
    store = make(root, **options)
    store.load()
    return store


async def settled(condition):
    """Wait for something that a thread brings about."""
    while not condition():  # pytest's own time limit ends it. Real time, also where the test moves the clock.
        await trio.to_thread.run_sync(time.sleep, 0.001)

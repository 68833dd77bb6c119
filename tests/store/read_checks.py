"""A store with messages of all kinds in small files."""

import random

from tests.store.records import HOST_V6, put_message
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore

FILE_SIZE = 100_000
COUNT = 120
TOPICS, QUEUES = ("T0", "Topic-with-a-long-name"), 2


def opened(root, **options):
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 2000}
    store = MessageStore(StoreConfig(root=root, **{**sizes, **options}))
    store.load()
    return store


def fill(store, count=COUNT):
    rng = random.Random(4)
    for number in range(count):
        message = put_message(
            TOPICS[number % 2],
            rng.randbytes(rng.randrange(1, 1500)),
            queue_id=number // 2 % QUEUES,
            properties=b"UNIQ_KEY\x01%d\x02TAGS\x01t%d" % (number, number % 5),
            **({"born_host": HOST_V6} if number % 7 == 3 else {}),
        )
        assert store.put([message])[0].phy_offset >= 0
    store.dispatch_pending()

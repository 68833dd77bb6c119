"""A log that remembers what an index of it must have."""

import random

from tests.store.indexes import DispatchedLog, entries_of, expected_files, make_index
from tests.store.records import put_message
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.record.properties import parse_properties

LOG_FILE_SIZE = 16_384
SLOTS, ITEMS = 7, 20
PREPARED, ROLLBACK = 4, 12


class Ledger:
    """A log, and what was put into it."""

    def __init__(self, root, seed=0):
        self.root = root
        (root / "commitlog").mkdir(parents=True)
        self.log = DispatchedLog(MappedFileQueue(root / "commitlog", LOG_FILE_SIZE, "mappedFileSizeCommitLog"))
        self.random = random.Random(seed)
        self.now_ms = 1_795_265_726_442

    def put(self, *messages: PutMessage):
        """Append; the entries, for the index."""
        self.now_ms += self.random.choice([0, 1, 999, 1000, 5432])
        return self.log.append(messages, self.now_ms)[1]

    def put_any(self, count):
        """Append messages of all kinds."""
        return [entry for _ in range(count) for entry in self.put(self.any_message())]

    def any_message(self):
        choose = self.random.choice
        number = self.random.randrange(1 << 128)
        properties = {
            "UNIQ_KEY": choose([f"{number:032X}", f"{number:056X}", "", "schlüssel", None]),
            "KEYS": choose([None, None, "", "a", "a b", " a  b ", "日本 😀", "x" * 70, f"order-{number % 50}"]),
            "TAGS": choose([None, "UNIQ_KEY", "KEYS"]),
        }
        raw = "\x02".join(f"{name}\x01{value}" for name, value in properties.items() if value is not None)
        flag = choose([0, 0, 0, PREPARED, 8, ROLLBACK])
        return put_message(
            choose(["T1", "Topic"]), bytes(self.random.randrange(300)), properties=raw.encode(), sys_flag=flag
        )

    def expected(self, slots=SLOTS, items=ITEMS):
        """The index files of all that is in the log."""
        return expected_files(map(keyed, entries_of(self.log)), slots, items)

    def index(self, slots=SLOTS, items=ITEMS):
        return make_index(self.root, self.log, slots=slots, items=items)


def keyed(entry):
    """Topic, keys, offset and store time of a record, by the rules of RocketMQ."""
    properties = parse_properties(entry.properties.decode())
    keys = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
    keys = [key for key in keys if key] if entry.sys_flag & 12 != ROLLBACK else []
    return entry.topic, keys, entry.phy_offset, entry.store_timestamp

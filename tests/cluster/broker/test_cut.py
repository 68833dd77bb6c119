"""A broker whose log is cut: what hangs on it besides the store."""

from tests.cluster.broker.helpers import make_broker, opened, put
from twinlog.store.config import BrokerRole


async def test_consumer_offsets_do_not_outlive_their_messages(tmp_path):
    """A slave keeps offsets that are newer than its master's: these would pass over the messages that come now."""
    async with opened(make_broker(tmp_path)) as client:
        store = client.broker.store
        for n in range(4):
            put(client.broker, body=b"%d" % n)
        cut = store.queue("T1", 0).unit(2).phy_offset
    async with opened(make_broker(tmp_path, role=BrokerRole.SLAVE)) as client:
        broker = client.broker
        for group, topic, offset in (("all", "T1", 4), ("some", "T1", 1), ("none", "T2", 7)):
            broker.tables.offsets.commit(group, topic, 0, offset)
        broker.tables.offsets.dirty = False
        await broker.store.truncate(cut, "a test")
        assert broker.tables.offsets.table == {"T1@all": {0: 2}, "T1@some": {0: 1}, "T2@none": {0: 0}}
        assert broker.tables.offsets.dirty
        broker.tables.offsets.dirty = False
        await broker.store.reset("a test")
        assert broker.tables.offsets.table == {"T1@all": {0: 0}, "T1@some": {0: 0}, "T2@none": {0: 0}}

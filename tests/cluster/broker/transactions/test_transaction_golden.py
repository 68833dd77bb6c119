"""The captured transactions of a real producer, begun, ended and checked by our broker: our records are the real broker's."""

import attrs

from tests.cluster.broker.helpers import Client, FakeConnection, heartbeat, make_broker
from tests.cluster.broker.sending import Wire
from tests.cluster.broker.wire import frames
from tests.store import golden
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import Request
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import scan_records

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
BEGIN, END, CHECK = 310, 37, 39


def records(root):
    """The records of transactions, in the order of the log."""
    for start, content in golden.log_files(root / "commitlog").items():
        for entry in scan_records(content, start, golden.FILE_SIZE, check_crc=True).entries:
            message = decode_message(content, entry.phy_offset - start)
            if message.topic in (HALF, OP) or "TRAN_MSG" in message.properties:
                yield message


def without_place(message):
    """The message without what depends on other messages and on the moment."""
    born = 0 if message.topic == OP else message.born_timestamp
    return attrs.evolve(
        message, phy_offset=0, queue_offset=0, prepared_transaction_offset=0, store_timestamp=0, born_timestamp=born
    )


@attrs.define
class Replay:
    """Our broker under the captured requests; offsets that the real broker gave are translated."""

    client: Client
    theirs: list
    clock: list[int]
    wire: Wire = attrs.field(factory=Wire)
    ours_at: dict = attrs.field(factory=dict)  # By their offset of a half message: ours, in log and queue.

    def begin(self, command):
        broker = self.client.broker
        their = self.theirs_of(HALF, command.ext["i"])
        self.clock[0], self.wire.remote_host = their.store_timestamp, their.born_host
        broker.send.process(self.wire, [command])
        answer = self.wire.answers[-1]
        self.ours_at[their.phy_offset] = int(answer.ext["msgId"][-16:], 16), int(answer.ext["queueOffset"])
        assert answer.ext["queueId"] == command.ext["e"]

    def theirs_of(self, topic, text):
        key = next(part for part in text.split("\x02") if part.startswith("UNIQ_KEY\x01"))
        return next(m for m in self.theirs if m.topic == topic and key in m.properties_raw.decode())

    def end(self, command):
        phy_offset, queue_offset = self.ours_at[int(command.ext["commitLogOffset"])]
        ext = {**command.ext, "commitLogOffset": str(phy_offset), "tranStateTableOffset": str(queue_offset)}
        handler = self.client.table[END]
        request = Request(self.client.connection, command)
        handler.function(decode_header(handler.header, ext), request)

    def ours(self):
        store = self.client.broker.store
        store.dispatch_pending()
        for _, _, queue in store.queues():
            for n in range(queue.max_offset):
                yield decode_message(store.message_at(queue.unit(n).phy_offset))


async def test_records_and_check_requests_are_the_real_brokers(tmp_path, autojump_clock):
    """Commit, rollback, unknown and then commit: half, committed, op and re-put records, and what the producer is asked."""
    theirs = list(records(golden.unpack("4.9.7", "master", tmp_path)))
    clock = [0]
    broker = make_broker(
        tmp_path / "ours", broker_cluster_name="GoldenCluster", broker_name="golden-a", listen_port=30111
    )
    broker.store.hooks.now_ms = broker.transactions.now_ms = lambda: clock[0]
    broker.store.load()
    broker.tables.topics.update(TopicConfig("TopicB", 2, 2))
    await broker.tables.topics_writer.save()
    replay = Replay(Client(broker), theirs, clock)
    producer = FakeConnection()
    body = heartbeat() | {"producerDataSet": [{"groupName": "golden_tx"}], "consumerDataSet": []}
    Client(broker, producer).ask(34, body)
    asked = []
    for command in frames("rocketmq-4.9.7"):
        if command.code == BEGIN and "TRAN_MSG" in command.ext["i"]:
            replay.begin(command)
        elif command.code == CHECK:
            if not asked:  # One round asks about all three.
                broker.store.dispatch_pending()
                clock[0] += 10_000
                await broker.transactions.check()
                asked = list(producer.sent)
            ours, real = asked.pop(0), decode_message(command.body)
            their_offset, offset = int(command.ext["commitLogOffset"]), int(ours.ext["commitLogOffset"])
            replay.ours_at[their_offset] = offset, int(ours.ext["tranStateTableOffset"])
            assert ours.ext.keys() == command.ext.keys()
            assert [ours.ext[name] for name in ("msgId", "transactionId")] == [real.properties["UNIQ_KEY"]] * 2
            assert ours.ext["tranStateTableOffset"] == command.ext["tranStateTableOffset"]
            assert ours.ext["offsetMsgId"] == command.ext["offsetMsgId"][:-16] + f"{offset:016X}"
            assert (ours.flag, ours.code) == (command.flag, 39)
            assert attrs.evolve(decode_message(ours.body), phy_offset=real.phy_offset) == real
        elif command.code == END and not command.is_response:
            replay.end(command)
    ours = list(replay.ours())
    for topic in (HALF, OP, "TopicB"):
        key = (lambda m: int(m.body)) if topic == OP else (lambda m: (m.born_timestamp, m.phy_offset))
        expected, found = (sorted((m for m in some if m.topic == topic), key=key) for some in (theirs, ours))
        assert list(map(without_place, found)) == list(map(without_place, expected))
        if topic == "TopicB":
            halves = [replay.ours_at[message.prepared_transaction_offset][0] for message in expected]
            assert [message.prepared_transaction_offset for message in found] == halves
    assert len(ours) == len(theirs) == 12 + 9 + 6
    assert broker.store.queue(OP, 0).unit(0).tags_code == 100
    await broker.transactions.check()
    assert broker.tables.offsets.table == {f"{HALF}@CID_RMQ_SYS_TRANS": {0: 12}, f"{OP}@CID_RMQ_SYS_TRANS": {0: 9}}
    assert broker.tables.topics.table[HALF].to_json() == golden_topic(HALF)
    assert OP not in broker.tables.topics.table
    await broker.store.close()


def golden_topic(name):
    """As 4.9.7 registers it at its first check."""
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }

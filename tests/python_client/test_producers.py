"""Whatever sends: messages one by one and many, delayed, transactional, requests; signed, compressed and over TLS."""

import os
import ssl

import anyio
import pytest

from tests.python_client.helpers import ACCOUNT, collect, message, messages, numbers, until
from twinlog.client import (
    Admin,
    Client,
    Credentials,
    Decision,
    From,
    MessageQueue,
    OutgoingMessage,
    PushConsumer,
    Requester,
    SendResult,
    SendStatus,
    TransactionProducer,
    by_key,
    make_signer,
    open_admin,
    reply,
)
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError, RequestError


async def test_every_way_to_send(client, topic):
    """One by one, in batches, at once, oneway, to a queue: all arrive whole, with all that they carry."""
    producer = client.producer(topic)
    large = bytes(range(256)) * 64  # Compressed.
    first = await producer.send(
        OutgoingMessage(topic=topic, body=large, tags="a", keys="k1 k2", properties={"city": "Köln"}, flag=7)
    )
    assert (first.status, first.queue.topic) == (SendStatus.SEND_OK, topic)
    batch = [message(topic, number, tags="b") for number in range(100)]
    assert len(await producer.send_batch(batch, size_max=4096)) > 1
    many = await producer.send_all(messages(topic, range(100, 700)))
    assert all(isinstance(each, SendResult) and each.status is SendStatus.SEND_OK for each in many)
    assert len({each.message_id for each in many if isinstance(each, SendResult)}) == 600
    await producer.send_oneway(message(topic, 700))
    chosen = MessageQueue(topic, first.queue.broker_name, 3)
    assert (await producer.send(message(topic, 701), queue=chosen)).queue == chosen
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, batch_max=32) as consumer:
        found = await collect(consumer, 703)
    by_body = {each.body: each for each in found}
    whole = by_body.pop(large)
    assert (whole.tags, whole.keys, whole.properties["city"], whole.flag) == ("a", "k1 k2", "Köln", 7)
    assert (whole.message_id, whole.body_problem) == (first.message_id, None)
    assert sorted(map(int, by_body)) == list(range(702))


async def test_bodies_that_are_too_large_are_refused(client, topic):
    """By the broker; one among others takes none of them along, and the connection goes on."""
    producer = client.producer(topic)
    large = OutgoingMessage(topic=topic, body=os.urandom(5 * 1024 * 1024))
    with pytest.raises(RemotingError):
        await producer.send(large)
    ok, refused, also_ok = await producer.send_all([message(topic, 1), large, message(topic, 2)])
    assert isinstance(ok, SendResult)
    assert isinstance(refused, RemotingError)
    assert isinstance(also_ok, SendResult)
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        assert sorted(numbers(await collect(consumer, 2))) == [1, 2]


async def test_delay_and_transactions(client, topic):
    """A delayed message comes late; transactions are committed, rolled back by an error, and left open: then the broker asks."""
    asked: list[int] = []

    async def check(half) -> Decision:
        asked.append(int(half.body))
        return Decision.COMMIT if int(half.body) == 3 else Decision.ROLLBACK

    producer = TransactionProducer(client, f"{topic}-producers", check)
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        await client.producer(topic).send(message(topic, 0, delay_level=3))
        async with producer.begin(message(topic, 1)):
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.begin(message(topic, 2)):
                raise ZeroDivisionError
        for number in (3, 4):
            async with producer.begin(message(topic, number)) as transaction:
                transaction.leave_open()
        with anyio.move_on_after(0.05) as scope:  # Nobody knows what had been done: `check` decides.
            async with producer.begin(message(topic, 5)):
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        found = await collect(consumer, 3)
        assert sorted(numbers(found)) == [0, 1, 3]
        await until(lambda: {3, 4} <= set(asked))
    late = next(each for each in found if each.body == b"0")
    assert late.store_timestamp - late.born_timestamp >= 900
    assert set(asked) <= {3, 4, 5}


async def test_questions_and_replies(client, other, topic):
    answering = client.producer(f"{topic}-answers")

    async def answer(batch) -> None:
        for each in batch:
            await reply(answering, each, b"re: " + each.body, colour="blue")

    requester = Requester(other, f"{topic}-questions")
    with pytest.raises(RemotingTimeoutError):
        await requester.request(message(topic, 0), timeout_ms=200)
    async with PushConsumer(client, topic, {topic: "*"}, handler=answer):
        got = await requester.request(message(topic, 1), timeout_ms=20_000)
    assert (got.body, got.properties["colour"]) == (b"re: 1", "blue")


async def test_who_signs_wrongly_is_refused(broker, client, topic):
    """With another key, and with none; nothing is stored."""
    for sign in (make_signer(Credentials(ACCOUNT.access_key, "another")), None):
        async with Client(broker.namesrv, sign=sign) as stranger:
            with pytest.raises(RequestError) as refusal:
                await stranger.producer(topic).send(message(topic, 1))
            assert refusal.value.remark
    stats = await client.api.topic_stats(broker.address, topic)
    assert sum(each.max_offset for each in stats.values()) == 0


async def test_tls(broker, topic, client):
    """All connections are TLS ones; a certificate that nobody trusts is told as such."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with Client(broker.namesrv, sign=make_signer(ACCOUNT), tls=trusting) as secure:
        sent = await secure.producer(topic).send_all(messages(topic, range(50)))
        assert all(isinstance(each, SendResult) for each in sent)
        large = os.urandom(1_000_000)  # Many TLS records, both ways.
        await secure.producer(topic).send(OutgoingMessage(topic=topic, body=large, tags="large"))
        async with PushConsumer(secure, topic, {topic: "*"}, start=From.FIRST) as consumer:
            found = await collect(consumer, 51)
    assert large in {each.body for each in found}
    async with Client(broker.namesrv, tls=ssl.create_default_context(), timeout_ms=1500) as careful:
        with pytest.raises(RemotingError, match="certificate is not trusted"):
            await careful.producer(topic).send(message(topic, 1))


async def test_administration(client, broker, topic):
    """What the command line does, on the connections of a client."""
    admin = Admin(client.api)
    await client.producer(topic).send_all(messages(topic, range(8)), select=by_key("k"))
    detail = await admin.topics.show(topic)
    assert [sum(queue.messages or 0 for queue in detail.queues), len(detail.queues)] == [8, 4]
    assert [each.address for each in (await admin.list_members()).members] == [broker.address]
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        await collect(consumer, 8)
        (group,) = [each for each in (await admin.groups.summaries()).groups if each.name == topic]
        assert (group.clients, group.state) == (1, "consuming")
    with pytest.raises(RequestError) as refusal:  # It signs nothing here; errors come as they are.
        async with open_admin((broker.namesrv,)) as unknown:
            await unknown.topics.apply(await unknown.topics.prepare_create(TopicConfig("New"), (), None))
    assert refusal.value.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "refused"),
        ("no-such-host.invalid:9876", "no-such-host"),
        ("127.0.0.1:99999", "99999"),
        ("nonsense:port", "port"),
    ],
)
async def test_wrong_addresses(address, why):
    """Told at once, by the address."""
    async with Client(address, timeout_ms=1000) as stranger:
        with anyio.fail_after(10), pytest.raises(RemotingError, match=why) as error:
            await stranger.producer("P").send(message("T", 1))
        assert address in str(error.value)
        with anyio.fail_after(10), pytest.raises(RemotingError, match=why):
            async with PushConsumer(stranger, "G", {"T": "*"}):
                pass


async def test_a_client_that_is_not_entered_says_so(broker):
    idle = Client(broker.namesrv)
    with pytest.raises(RemotingConnectError, match="async with"):
        await idle.api.topic_route("T")
    consumer = PushConsumer(idle, "G", {"T": "*"})
    with pytest.raises(RuntimeError, match="async with"):
        await consumer.take()

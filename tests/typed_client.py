"""Programs of users of twinlog.client, for strict type checkers (scripts/check): nothing is Any."""

from typing import assert_type

from twinlog.client import (
    Admin,
    Batch,
    Client,
    Credentials,
    Decision,
    FlowLimits,
    From,
    FromTime,
    HalfMessageError,
    MessageQueue,
    NoRouteError,
    OutgoingMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    ReplyMessage,
    Requester,
    RequestError,
    SendResult,
    SendStatus,
    Sql,
    SyncBatch,
    SyncClient,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncRequester,
    SyncTransactionProducer,
    Transaction,
    TransactionProducer,
    by_key,
    make_signer,
    open_admin,
    reply,
    split_batch,
)

MESSAGE = OutgoingMessage(topic="T", body=b"x", tags="a", keys="k", delay_level=1, properties={"city": "Leeds"})


async def handle(batch: Batch) -> None:
    for message in batch:
        assert_type(message, ReceivedMessage)
        assert_type(message.body, bytes)
        assert_type(message.properties, dict[str, str])
        assert_type(message.keys, str)
        assert_type(message.reconsume_times, int)
    assert_type(batch.queue, MessageQueue)
    batch.later(3)
    await batch.done()


def check(message: ReceivedMessage) -> Decision:
    return Decision.COMMIT if message.keys else Decision.UNKNOWN


async def send(client: Client) -> None:
    producer = client.producer("g", tries_max=2, compress_from=None)
    assert_type(producer, Producer)
    result = await producer.send(MESSAGE, select=by_key("k"), timeout_ms=100)
    assert_type(result, SendResult)
    assert_type(result.status, SendStatus)
    assert_type(result.queue.queue_id, int)
    assert_type(await producer.send_batch([MESSAGE]), list[SendResult])
    assert_type(await producer.send_oneway(MESSAGE, queue=result.queue), str)
    for outcome in await producer.send_all(MESSAGE for _ in range(3)):
        assert_type(outcome, SendResult | RemotingError)
    for part in split_batch([MESSAGE], 1000):
        assert_type(part, list[OutgoingMessage])
    transactions = TransactionProducer(client, "t", check)
    async with transactions.begin(MESSAGE) as transaction:
        assert_type(transaction, Transaction)
        transaction.rollback()
    answer = await Requester(client, "r").request(MESSAGE, timeout_ms=1000)
    assert_type(answer, ReplyMessage)
    assert_type(answer.body, bytes)


async def consume(client: Client) -> None:
    async with PushConsumer(
        client, "g", {"T": "a || b", "U": Sql("price > 1")}, handler=handle, start=FromTime(1), limits=FlowLimits(10)
    ):
        pass
    async with PushConsumer(client, "g", {"T": "*"}, ordered=True) as consumer:
        async for batch in consumer:
            assert_type(batch, Batch)
            assert_type(await reply(client.producer("g"), batch.messages[0], b"x", own="field"), SendResult)
        assert_type(await consumer.take(), Batch)
    async with PullConsumer(client, "g", start=From.FIRST) as puller:
        queues = await puller.queues("T")
        assert_type(queues, list[MessageQueue])
        await puller.assign(queues)
        assert_type(await puller.poll(count_max=1), list[ReceivedMessage])
        assert_type(puller.position(queues[0]), int)


async def main() -> None:
    signer = make_signer(Credentials("key", "secret"))
    try:
        async with Client("127.0.0.1:9876", timeout_ms=1, sign=signer) as client, Client(("a:1", "b:2")) as other:
            assert_type(client, Client)
            await send(client)
            await consume(other)
    except NoRouteError as error:
        assert_type(error.may_come, bool)
    except HalfMessageError as error:
        assert_type(error.result, SendResult)
    except (RemotingConnectError, RemotingTimeoutError) as error:
        assert_type(error.address, str)
    except RequestError as error:
        assert_type(error.code, int)
    except RemotingError as error:
        assert_type(error.next_step, str)
    async with open_admin(("127.0.0.1:9876",)) as admin:
        assert_type(admin, Admin)
        for topic in await admin.topics.summaries(all_topics=True):
            assert_type(topic.name, str)


def handle_blocking(batch: SyncBatch) -> None:
    for message in batch:
        assert_type(message, ReceivedMessage)
    batch.done()


def blocking() -> None:
    with SyncClient("127.0.0.1:9876", timeout_ms=1) as client:
        assert_type(client, SyncClient)
        producer = client.producer("g")
        assert_type(producer, SyncProducer)
        assert_type(producer.send(MESSAGE, select=by_key("k"), timeout_ms=100), SendResult)
        assert_type(producer.send_batch([MESSAGE]), list[SendResult])
        for outcome in producer.send_all([MESSAGE]):
            assert_type(outcome, SendResult | RemotingError)
        transactions = SyncTransactionProducer(client, "t", check)
        with transactions.begin(MESSAGE) as transaction:
            assert_type(transaction, Transaction)
        assert_type(transactions.send(MESSAGE, lambda sent: None), tuple[SendResult, Decision])
        assert_type(SyncRequester(client, "r").request(MESSAGE).body, bytes)
        with SyncPushConsumer(client, "g", {"T": "*"}, handler=handle_blocking, workers=2):
            pass
        with SyncPushConsumer(client, "g", {"T": Sql("a > 1")}) as consumer:
            for batch in consumer:
                assert_type(batch, SyncBatch)
                assert_type(producer.reply(batch.messages[0], b"x", own="field"), SendResult)
        with SyncPullConsumer(client, "g") as puller:
            puller.assign(puller.queues("T"))
            assert_type(puller.poll(timeout_seconds=1), list[ReceivedMessage])
            assert_type(puller.position(next(iter(puller.assigned))), int)
        for topic in client.admin.topics.summaries():
            assert_type(topic.name, str)
        assert_type(client.admin.groups.show("g").name, str)

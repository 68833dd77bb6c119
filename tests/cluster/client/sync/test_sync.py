"""The blocking client against a broker in another thread."""

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from tests.support.group.in_thread import running_cluster
from twinlog.client import (
    ClientClosedError,
    Decision,
    From,
    NoRouteError,
    OutgoingMessage,
    RequestError,
    SendStatus,
    Sql,
    SyncClient,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncRequester,
    SyncTransactionProducer,
    by_key,
)
from twinlog.cluster.client.service import Service
from twinlog.cluster.client.sync.calls import ServiceWrapper, blocking
from twinlog.store.util import disk_space

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_space, "usage_ratio", lambda path: 0.5)
        with running_cluster(tmp_path_factory.mktemp("cluster"), transaction_timeout_ms=500) as address:
            yield address


@pytest.fixture
def client(namesrv):
    with SyncClient(namesrv) as running:
        yield running


@pytest.fixture
def topic(client):
    """Made by its first message; groups get its name, too."""
    return made(client, f"Sync{next(NUMBERS)}")


def made(client, topic):
    """The topic, once name servers know it."""
    client.producer("makers").send(message(topic, b"first"))
    while topic not in {each.name for each in client.admin.topics.summaries()}:
        time.sleep(0.01)
    return topic


def message(topic, body=b"x", **more):
    return OutgoingMessage(topic=topic, body=body, **more)


def test_every_way_to_send_waits_for_the_broker(client, topic):
    producer = client.producer(topic, tries_max=2)
    sent = producer.send(message(topic), select=by_key("one"))
    assert sent.status is SendStatus.SEND_OK
    assert len(producer.send_batch([message(topic), message(topic)], queue=sent.queue)) == 1
    assert producer.send_oneway(message(topic), queue=sent.queue)
    outcomes = producer.send_all(message(topic, b"%d" % number) for number in range(20))
    assert [each.status for each in outcomes] == [SendStatus.SEND_OK] * 20
    detail = client.admin.topics.show(topic)
    assert sum(queue.max_offset for queue in detail.queues) == 1 + 1 + 2 + 1 + 20
    assert [each.name for each in client.admin.list_members().members] == ["broker-a-0"]


def test_batches_are_iterated_by_several_threads(client, topic):
    producer = client.producer(topic)
    bodies = {b"%d" % number for number in range(40)}
    assert all(producer.send_all(message(topic, body) for body in bodies))
    got, everything = set(), threading.Event()

    def work():
        for batch in consumer:
            got.update(each.body for each in batch)
            if got >= bodies:
                everything.set()

    with ThreadPoolExecutor(3) as threads:
        with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
            waits = [threads.submit(work) for _ in range(3)]
            assert everything.wait(10)
        for wait in waits:  # The end of the block ends those that wait in other threads.
            with pytest.raises(ClientClosedError, match="ended"):
                wait.result(5)


def test_handlers_run_in_threads_and_may_send(client, topic):
    """Each of two handlers waits for the other one: they run at the same time. One that raises gets its batch again."""
    both = threading.Barrier(2, timeout=10)
    answers, tries = made(client, f"{topic}Answers"), itertools.count()
    producer = client.producer(topic)

    def handle(batch):
        if batch.queue.topic != topic:
            return
        (got,) = batch
        if got.body == b"first":
            return
        both.wait()
        producer.send(message(answers, got.body))
        if not next(tries):
            raise ValueError("not the first time")

    with SyncPullConsumer(client, f"{topic}Pull", start=From.FIRST) as answered:
        answered.assign(answered.queues(answers))
        with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle, workers=2):
            producer.send_all([message(topic, b"1"), message(topic, b"2")])
            bodies = set()
            while len(bodies) < 3:
                bodies.update(each.body for each in answered.poll())
    assert bodies == {b"first", b"1", b"2"}


def test_the_end_of_the_block_waits_for_handlers_and_commits_what_they_did(client, topic):
    begun, ended = threading.Event(), threading.Event()

    def handle(batch):
        begun.set()
        time.sleep(0.5)
        ended.set()

    with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle):
        assert begun.wait(10)
    assert ended.is_set()
    with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        client.producer(topic).send(message(topic, b"second"))
        assert [each.body for each in next(iter(consumer))] == [b"second"]


def test_pull(client, topic):
    with SyncPullConsumer(client, topic, start=From.FIRST, auto_commit=False) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        assert consumer.assigned == set(queues)
        (got,) = consumer.poll()
        assert got.body == b"first"
        assert consumer.poll(timeout_seconds=0.01) == []
        assert consumer.position(got.queue) == 1
        consumer.seek(got.queue, From.FIRST)
        assert [each.body for each in consumer.poll()] == [b"first"]
        consumer.commit()
        with pytest.raises(KeyError):
            consumer.position("other")


def test_transactions(client, topic):
    checked = threading.Event()

    def check(half):
        checked.set()
        assert threading.current_thread().name.startswith("twinlog handler")
        return Decision.COMMIT

    producer = SyncTransactionProducer(client, topic, check)
    with producer.begin(message(topic, b"committed")):
        pass
    with pytest.raises(LookupError), producer.begin(message(topic, b"rolled back")):
        raise LookupError
    assert producer.send(message(topic, b"discarded"), lambda sent: Decision.ROLLBACK)[1] is Decision.ROLLBACK
    assert producer.send(message(topic, b"sent"), lambda sent: None)[1] is Decision.COMMIT
    with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        bodies = set()
        for batch in consumer:
            bodies.update(each.body for each in batch)
            if {b"committed", b"sent"} <= bodies:
                break
    assert bodies == {b"first", b"committed", b"sent"}


def test_request_and_reply(client, topic, namesrv):
    with SyncClient(namesrv) as other:
        answers = other.producer("answers")

        def answer(batch):
            for question in batch:
                if question.body == b"how are you?":
                    answers.reply(question, b"fine")

        with SyncPushConsumer(other, topic, {topic: "*"}, start=From.FIRST, handler=answer):
            reply = SyncRequester(client, topic).request(message(topic, b"how are you?"), timeout_ms=10_000)
    assert reply.body == b"fine"


def test_errors_are_those_of_the_asynchronous_client(client, topic):
    with pytest.raises(RequestError, match="SQL"), SyncPushConsumer(client, topic, {topic: Sql("a > 1")}):
        pass
    with pytest.raises(ValueError, match="no name server"), SyncClient(""):
        pass
    with SyncPullConsumer(client, topic) as consumer, pytest.raises(NoRouteError):
        consumer.queues("no-such-topic")


def test_outside_of_its_block_a_client_says_so(namesrv, client, topic):
    unused = SyncClient(namesrv)
    with pytest.raises(ClientClosedError, match="with block"):
        unused.producer("g")
    with SyncClient(namesrv) as other:
        producer = other.producer("g")
    with pytest.raises(ClientClosedError, match="has ended"):
        producer.send(message(topic))
    with pytest.raises(ClientClosedError, match="with block"):
        SyncPullConsumer(client, "g").poll()


def test_it_works_where_a_loop_runs_and_without_a_block(namesrv, topic):
    """As in cells of Jupyter."""

    async def cells():
        client = SyncClient(namesrv).open()
        status = client.producer("cells").send(message(topic)).status
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="started before"):
            client.open()
        return status

    assert asyncio.run(cells()) is SendStatus.SEND_OK


def test_what_would_wait_for_itself_says_so(client, topic):
    producer = client.producer(topic)

    def select(queues):
        return producer.send(message(topic)).queue

    with pytest.raises(RuntimeError, match="would wait for itself"):
        producer.send(message(topic), select=select)


SCRIPT = """
import sys, time
from twinlog.client import From, OutgoingMessage, SyncClient, SyncPushConsumer

namesrv, topic, way = sys.argv[1:]

def handle(batch):
    print("waits", flush=True)
    time.sleep(60)

with SyncClient(namesrv) as client:
    handler = handle if way == "handler" else None
    with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handler) as consumer:
        if way == "handler":
            time.sleep(60)
        for batch in consumer:
            batch.done()
            print("waits", flush=True)
"""


@pytest.mark.parametrize("way", ["iteration", "handler"])
def test_ctrl_c_ends_it_at_once_and_leaves_the_group(client, topic, namesrv, way):
    """What was not done is delivered again: the batch of a handler that hangs."""
    command = [sys.executable, "-c", SCRIPT, namesrv, topic, way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert client.admin.groups.show(topic).clients == ()
    with SyncPushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        if way == "iteration":  # The first one is done.
            client.producer(topic).send(message(topic, b"second"))
        expected = b"second" if way == "iteration" else b"first"
        assert [each.body for each in next(iter(consumer))] == [expected]


INTERRUPTED = """
import os, random, signal, sys, threading, time
from twinlog.client import OutgoingMessage, SyncClient

def interrupt():
    for _ in range(100):
        time.sleep(random.uniform(0.0005, 0.01))
        os.kill(os.getpid(), signal.SIGINT)

with SyncClient(sys.argv[1]) as client:
    producer, message = client.producer("g"), OutgoingMessage(topic="Interrupted", body=b"x")
    sent = interrupts = 0
    thread = threading.Thread(target=interrupt)
    while interrupts < 90:
        try:
            if not thread.ident:
                thread.start()
            producer.send(message)
            sent += 1
        except KeyboardInterrupt:
            interrupts += 1
    while thread.is_alive():
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
    print(producer.send(message).status.name)
"""


def test_an_interrupt_at_any_moment_is_an_interrupt_and_breaks_nothing(namesrv):
    """No other error comes of it, nothing hangs, and the client goes on."""
    command = [sys.executable, "-c", INTERRUPTED, namesrv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "SEND_OK\n"), done.stderr


def test_nothing_runs_before_the_block(namesrv):
    before = threading.active_count()
    SyncClient(namesrv)
    assert threading.active_count() == before


class Failing(Service):
    async def run(self, *, task_status):
        task_status.started()
        await anyio.sleep(0.05)
        raise OSError("the service failed")

    async def wait(self):
        await anyio.sleep_forever()


class SyncFailing(ServiceWrapper[Failing]):
    def __init__(self, client):
        super().__init__()
        self._around = lambda: client.portal

    _make = staticmethod(Failing)
    wait = blocking(Failing.wait)


def test_an_error_of_a_service_ends_its_calls_and_is_told(client):
    with pytest.raises(ClientClosedError) as caught, SyncFailing(client) as service:
        service.wait()
    assert str(caught.value.__cause__) == "the service failed"
    with pytest.raises(OSError, match="the service failed"), SyncFailing(client):
        time.sleep(0.2)
    assert client.producer("g").queues  # The others go on.

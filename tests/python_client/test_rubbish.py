"""Servers that answer rubbish, or end in the middle: told within the time limits, and never taken for an acknowledgement."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import anyio
import pytest

from tests.python_client.helpers import message
from twinlog.client import Client, PullConsumer, PushConsumer, RemotingError


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def answer(asked: bytes, body: bytes, code: int = 0) -> bytes:
    """A response to the request, whose opaque number is cut out of its header."""
    start = asked.index(b'"opaque":') + 9
    opaque = bytes(each for each in asked[start : start + 12].split(b",")[0].split(b"}")[0])
    return frame(b'{"code":%d,"flag":1,"opaque":%s}' % (code, opaque), body)


WORST: dict[str, Callable[[bytes], bytes | None]] = {  # None: silence.
    "random": lambda _asked: Random(7).randbytes(2000),
    "http": lambda _asked: b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "close": lambda _asked: b"",
    "silence": lambda _asked: None,
    "half": lambda asked: answer(asked, b"{}" * 500)[:600],
    "no JSON": lambda asked: answer(asked, b"<html>"),
    "a list": lambda asked: answer(asked, b"[1,2,3]"),
    "text for numbers": lambda asked: answer(
        asked, b'{"queueDatas":[{"brokerName":"b","readQueueNums":"x","writeQueueNums":4,"perm":6}]}'
    ),
    "huge numbers": lambda asked: answer(
        asked,
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":1e400,"writeQueueNums":9e99,"perm":6}],"brokerDatas":[]}',
    ),
    "nothing known": lambda asked: answer(asked, b'{"queueDatas":null,"brokerDatas":null}'),
    "broker is no address": lambda asked: answer(
        asked,
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":1,"writeQueueNums":1,"perm":6}],'
        b'"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":{"0":"nowhere"}}]}',
    ),
    "brokers by text": lambda asked: answer(
        asked,
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":1,"writeQueueNums":1,"perm":6}],'
        b'"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":["127.0.0.1:1"]}]}',
    ),
    "deep": lambda asked: answer(asked, b"[" * 100_000),
    "empty": lambda asked: answer(asked, b""),
    "header is a list": lambda _asked: frame(b"[]"),
    "negative": lambda _asked: struct.pack(">ii", -5, 3) + b"abc",
}


Say = Callable[[bytes], bytes | None]


@contextmanager
def server(say: Say, *, ends: bool = False) -> Iterator[str]:
    """The address of a server that says that to each request, and closes the connection if it `ends`."""
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            while asked := connection.recv(65536):
                if (said := say(asked)) is not None:
                    connection.sendall(said)
                if ends:
                    connection.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for each in (listener, *connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def stranger(name: str) -> Iterator[str]:
    """The address of one of these."""
    with server(WORST[name], ends=name in ("random", "http", "close")) as address:
        yield address


@pytest.mark.parametrize("name", WORST)
async def test_a_name_server_that_answers_rubbish(name):
    with stranger(name) as namesrv:
        async with Client(namesrv, timeout_ms=200) as client:
            producer = client.producer("P", tries_max=1)
            with anyio.fail_after(8):
                with pytest.raises(RemotingError):
                    await producer.send(message("T", 1))
                (outcome,) = await producer.send_all([message("T", 1)])
                assert isinstance(outcome, RemotingError)
                with pytest.raises(RemotingError):
                    await producer.send_oneway(message("T", 1))
                if name != "broker is no address":  # The route is one.
                    async with PullConsumer(client, "G") as consumer:
                        with pytest.raises(RemotingError):
                            await consumer.queues("T")


@pytest.mark.parametrize("name", ["random", "close", "silence", "half", "a list", "empty"])
async def test_a_broker_that_answers_rubbish(name):
    """The name server is a good one, and names it. Nothing counts as stored, and a consumer leaves in time."""
    route: dict[str, Any] = {
        "queueDatas": [{"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
        "brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {}}],
    }
    with stranger(name) as broker, server(lambda asked: answer(asked, json.dumps(route).encode())) as namesrv:
        route["brokerDatas"][0]["brokerAddrs"] = {"0": broker}
        async with Client(namesrv, timeout_ms=200) as client:
            producer = client.producer("P", tries_max=1)
            with anyio.fail_after(10):
                with pytest.raises(RemotingError):
                    await producer.send(message("T", 1))
                with pytest.raises(RemotingError):
                    await producer.send_batch([message("T", 1), message("T", 2)])
                outcomes = await producer.send_all([message("T", 1), message("T", 2)])
                assert all(isinstance(each, RemotingError) for each in outcomes), outcomes
                async with PushConsumer(client, "G", {"T": "*"}) as consumer:
                    with anyio.move_on_after(0.2):
                        await consumer.take()
                        raise AssertionError("it made a message of that")

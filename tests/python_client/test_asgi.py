"""An application under uvicorn and uvloop: it sends in its handlers, consumes in its lifespan, and ends on SIGTERM."""

import asyncio
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.python_client.helpers import ACCOUNT, collect, with_ours
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process, answers
from twinlog.client import Client, From, PushConsumer, make_signer

ROOT = Path(__file__).parents[2]
WORKERS = 4  # Of the application's consumer.


@pytest.fixture
def served(broker, topic, tmp_path):
    """The process of asgi_app.py, and where it is."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.python_client.asgi_app:app", "--loop", "uvloop"]
    command += ["--host", HOST, "--port", str(port), "--app-dir", str(ROOT), "--log-level", "info"]
    environment = {
        "NAMESRV": broker.namesrv,
        "TOPIC": topic,
        "ACCOUNT": json.dumps([ACCOUNT.access_key, ACCOUNT.secret_key]),
        "DONE": str(tmp_path / "done"),
    }
    with Process("uvicorn", command, log=tmp_path / "uvicorn.log", environment=environment) as process:
        process.wait_until(lambda: answers(port), "an answer")
        yield process, f"http://{HOST}:{port}"


@with_ours
def test_stopped_under_load_it_loses_nothing(served, broker, topic, tmp_path):
    """Whatever a request was told to be sent is stored; what its consumer has handled is committed, and the rest comes later."""
    process, url = served
    handled = tmp_path / "done"
    sent: list[str] = []
    told: list[int] = []

    def post(thread: int) -> None:
        with httpx.Client(base_url=url, timeout=20) as http:
            for number in range(5000):
                try:
                    answer = http.post("/messages", content=b"%d" % number)
                except httpx.TransportError:  # It has ended.
                    return
                assert answer.status_code == 200, answer.text
                sent.append(answer.json()["id"])
                if (
                    thread == 0
                    and number >= 40
                    and not told
                    and handled.exists()
                    and len(handled.read_text().split()) > 20
                ):
                    told.append(number)
                    os.kill(process.pid, signal.SIGTERM)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(post, range(8)))
    process.wait_until(lambda: process.printed("INFO:     Finished server process"), "its end", timeout_s=15)
    assert "Traceback" not in process.log.read_text()
    assert told
    assert len(sent) >= 40
    done = set(handled.read_text().split())

    async def the_rest() -> tuple[set[str], set[str]]:
        async with Client(broker.namesrv, sign=make_signer(ACCOUNT)) as client:
            stats = await client.api.topic_stats(broker.address, topic)
            count = sum(each.max_offset for each in stats.values())
            async with PushConsumer(client, f"{topic}-all", {topic: "*"}, start=From.FIRST, batch_max=32) as consumer:
                everything = {each.message_id for each in await collect(consumer, count)}
            rest: set[str] = set()
            async with PushConsumer(client, topic, {topic: "*"}, batch_max=32) as consumer:
                while not rest >= everything - done:
                    rest.update(each.message_id for each in await consumer.take())
            return everything, rest

    stored, rest = asyncio.run(the_rest())
    assert set(sent) <= stored
    assert done | rest == stored
    assert len(done) > 10
    assert len(done & rest) <= WORKERS  # Done while a message before it in its queue was not: these come again.

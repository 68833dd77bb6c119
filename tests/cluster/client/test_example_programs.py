"""The programs of docs/examples, and the Python of docs/clients.md, as their readers run them."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.group.in_thread import running_cluster
from twinlog.client import From, OutgoingMessage, SyncClient, SyncPushConsumer
from twinlog.store.util import disk_space

DOCS = Path(__file__).parents[3] / "docs"
BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "clients.md").read_text(), re.DOTALL)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_space, "usage_ratio", lambda path: 0.5)
        with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
            yield address


@pytest.fixture
def client(namesrv):
    with SyncClient(namesrv) as running:
        yield running


@contextmanager
def running(name, namesrv, *arguments):
    """A program of docs/examples; it is killed at the end of the block if it still runs."""
    command = [sys.executable, DOCS / "examples" / name, *arguments]
    environment = {**os.environ, "NAMESRV_ADDR": namesrv}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def send(client, topic, bodies):
    """Returns once name servers know the topic, too."""
    client.producer("senders").send_all(OutgoingMessage(topic=topic, body=body, keys=keys) for keys, body in bodies)
    while topic not in {each.name for each in client.admin.topics.summaries()}:
        time.sleep(0.01)


def test_a_worker_finishes_what_it_has_begun(client, namesrv):
    send(client, "Jobs", [(f"job-{number}", b"x") for number in range(3)])
    with running("worker.py", namesrv) as worker:
        begun, first = worker.stdout.readline().split()
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=20)
    assert begun == "begun"
    assert rest == f"done {first}\nstopped\n"
    assert worker.returncode == 0
    got = set()
    with SyncPushConsumer(client, "workers", {"Jobs": "*"}, start=From.FIRST) as consumer:
        while len(got) < 2:
            got.add(consumer.take().messages[0].keys)
    assert got == {"job-0", "job-1", "job-2"} - {first}


def test_payments_are_made_once_although_their_messages_come_again(client, namesrv, tmp_path):
    """The program is killed before it commits its offsets: all messages are delivered again."""
    send(client, "Payments", [(f"account-{number % 2}", b"%d" % number) for number in range(10)])
    path = tmp_path / "accounts.db"
    with running("exactly_once.py", namesrv, path) as program:
        seen = {tuple(program.stdout.readline().split()) for _ in range(10)}
    assert {what for what, _ in seen} == {"applied"}
    send(client, "Payments", [("account-0", b"100"), ("account-1", b"no number")])
    with running("exactly_once.py", namesrv, path) as program:
        again = [program.stdout.readline().split() for _ in range(12)]
    assert sorted(what for what, *_ in again) == ["applied", "refused", *["repeated"] * 10]
    with closing(sqlite3.connect(path)) as database:
        balances = dict(database.execute("SELECT * FROM accounts"))
    assert balances == {"account-0": 0 + 2 + 4 + 6 + 8 + 100, "account-1": 1 + 3 + 5 + 7 + 9}


def test_an_application_of_fastapi_under_uvicorn(client, namesrv):
    """With the application the client starts, serves and ends."""
    send(client, "Orders", [("first", b"x")])
    command = [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--app-dir", DOCS / "examples", "--port", "0"]
    environment = {**os.environ, "NAMESRV_ADDR": namesrv}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            (url,) = next(
                found for line in server.stderr if (found := re.findall(r"running on (http://[\d.:]+)", line))
            )
            answer = httpx.post(f"{url}/orders/17", content=b"two of them")
            assert (answer.status_code, answer.json()["status"]) == (202, "SEND_OK")
            deadline = time.monotonic() + 10
            while {"first", "17"} != set(httpx.get(f"{url}/shipped").json()):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            refused = httpx.post(f"{url}/orders/18", content=os.urandom(5 << 20))
            assert (refused.status_code, refused.json()["detail"][:15]) == (503, "MESSAGE_ILLEGAL")
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=20)
        finally:
            server.kill()
    assert "Application shutdown complete" in errors
    assert client.admin.groups.show("shipping").clients == ()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda text: text.split()[1])
def test_the_python_of_the_page(block, client, namesrv, capsys):
    send(client, "Greetings", [("", b"hello")])
    exec(compile(block.replace("127.0.0.1:9876", namesrv), "clients.md", "exec"), {"__name__": "__main__"})
    assert "b'hello'" in capsys.readouterr().out

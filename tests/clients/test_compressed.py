"""Bodies that the Java client of RocketMQ 5.3.3 compresses, each way that it has: shown as they were sent."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.clients import programs
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS

pytestmark = pytest.mark.timeout(150)
SENT = {kind: f"twinlog {kind} " * 20_000 for kind in ("LZ4", "ZSTD", "ZLIB")}


def lines(*arguments: object) -> list[dict]:
    command = [str(Path(sys.executable).with_name("twinlog")), *map(str, arguments), "-o", "json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def test_each_compression_of_the_java_client_is_shown_as_it_was_sent(tmp_path):
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        twinlog.Broker(tmp_path / "master", namesrv.address, role="ASYNC_MASTER", settings=TEST_SETTINGS) as master,
    ):
        create_topic(master.address, "clients-compressed")
        command = programs.java(namesrv.address, tmp_path, "CompressedSender")
        subprocess.run(command, capture_output=True, timeout=100, check=True)
        peeked = lines("peek", "clients-compressed", "-n", namesrv.address, "--count", 3)
        dumped = lines("log", "dump", master.store, "--topic", "clients-compressed", "--body")
    assert {m["tags"]: (m["compression"], m["body"] == SENT[m["tags"]], m["body_problem"]) for m in dumped} == {
        kind: (kind.lower(), True, None) for kind in SENT
    }
    assert all(m["body_size"] < 5000 for m in dumped)
    assert {m["message"]["tags"]: m["message"]["body"] for m in peeked} == SENT

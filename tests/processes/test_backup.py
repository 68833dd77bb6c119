"""A backup of a master at work, and what can be started from it."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import free_port_base, run, running
from tests.support.waiting import SECONDS_MAX, wait_for

pytestmark = pytest.mark.timeout(240)
SMALL_FILES = ("--set", "mappedFileSizeCommitLog=1048576")


class Load:
    """A producer at work: `acknowledged` are the bodies that it was told are stored, in order."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._process = subprocess.Popen(
            [PROGRAM, "send", "orders", "--lines", "--file", "-", "-o", "json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NAMESRV_ADDR": namesrv},
        )
        self._writer = threading.Thread(target=self._write)
        self._reader = threading.Thread(target=self._read)
        self._writer.start()
        self._reader.start()

    def _write(self) -> None:
        assert self._process.stdin is not None
        number = 0
        while not self._stop.is_set():
            self._process.stdin.write(f"{number} {'x' * 1000}\n")
            self._process.stdin.flush()
            number += 1
            time.sleep(0.002)
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for number, line in enumerate(self._process.stdout):
            assert json.loads(line)["status"] == "SEND_OK"
            self.acknowledged.append(str(number))

    def stop(self) -> None:
        self._stop.set()
        self._writer.join()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert self._process.wait(SECONDS_MAX) == 0


@contextmanager
def member(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A broker or name server of its own, until the end of the block."""
    process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready ")
            yield process
        finally:
            process.terminate()
            assert process.wait(SECONDS_MAX) == 0


def broker(root: Path, namesrv: str, port: int, **settings: object) -> list[str]:
    """The arguments of a broker of group broker-a."""
    known = {
        "brokerName": "broker-a",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "haListenHost": "127.0.0.1",
    }
    known |= {
        "listenPort": port,
        "storePathRootDir": root,
        "mappedFileSizeCommitLog": 1_048_576,
        "brokerIP2": "127.0.0.1",
    }
    pairs = (known | settings).items()
    return ["broker", "-n", namesrv, *(part for key, value in pairs for part in ("--set", f"{key}={value}"))]


def ok(*arguments: object) -> str:
    done = run(*map(str, arguments))
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_master_at_work_is_backed_up_and_lives_on_from_that(tmp_path):
    """A slave that starts from it fetches the rest only; a master that starts from it has all that was acknowledged before."""
    base = free_port_base(brokers=3)
    backup, restored, alone = tmp_path / "backup", tmp_path / "broker-a-2", tmp_path / "alone"
    master = tmp_path / "data" / "broker-a-0"
    with running(tmp_path / "data", port_base=base) as up:
        up.wait_ready()
        load = Load(up.namesrv)
        try:
            wait_for(lambda: len(load.acknowledged) > 1500, "more than one file of log")
            before = list(load.acknowledged)
            made = json.loads(ok("backup", master, backup, "-o", "json"))
            wait_for(lambda: len(load.acknowledged) > len(before) + 100, "messages behind the backup")
            assert made["source"]["was_running"]
            assert made["records"] >= len(before)
            assert len([file for file in made["files"] if file["path"].startswith("commitlog/")]) > 1
            ok("restore", backup, restored)
            follow_and_compare(up, load, master, restored, base)
        finally:
            load.stop()
    ok("restore", backup, alone)
    assert set(before) <= set(bodies_served_by_a_master_from(alone))


def follow_and_compare(up, load: Load, master: Path, restored: Path, base: int) -> None:
    """Start a slave from a restored store while its master goes on: in the end both logs are one."""
    secret = master.parent / "group-secret"
    settings = {"brokerId": 2, "brokerRole": "SLAVE", "haListenPort": base + 32, "haSecretFile": secret}
    with member(*broker(restored, up.namesrv, base + 31, **settings)):
        count = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > count + 100, "messages while it follows")
        load.stop()

        def is_level() -> bool:
            members = {each["name"]: each for each in up.members()}
            slave = members.get("broker-a-2")
            return slave is not None and slave["written_offset"] == members["broker-a-0"]["written_offset"]

        wait_for(is_level, "the slave has all")
        report = json.loads(ok("log", "diff", master, restored, "--queues", "-o", "json"))
        assert (report["verdict"], report["right_behind_bytes"]) == ("equal", 0)
        assert report["common_start"] == 0
    ok("log", "verify", restored)


def bodies_served_by_a_master_from(root: Path) -> list[str]:
    """What a consumer gets of a master that starts alone, under a name server of its own."""
    base = free_port_base(brokers=1)
    namesrv = f"127.0.0.1:{base}"
    kv = f"kvConfigPath={root.parent}/kv.json"
    with (
        member("namesrv", "--port", str(base), "--set", "bindAddress=127.0.0.1", "--set", kv),
        member(*broker(root, namesrv, base + 11, brokerRole="ASYNC_MASTER")),
    ):
        lines = ok("consume", "orders", "-n", namesrv, "-o", "json").splitlines()
        return [json.loads(line)["body"].split(" ")[0] for line in lines]

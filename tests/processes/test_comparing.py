"""A running cluster is compared while producers write, and after a byte was changed on a slave's disk."""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import Up, run, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)
CHANGED_AT = 30_000
BODY = (
    random.Random(1).randbytes(20_000).hex()
)  # What is as long as this travels packed; this takes half the room then.
MEMBERS = ("broker-a-0", "broker-a-1")


@contextmanager
def traffic(up: Up, body: str) -> Iterator[None]:
    """One producer, one message after the other."""
    command = [PROGRAM, "send", "orders", body, "--count", "1000000", "-n", up.namesrv]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as producer:
        try:
            yield
            assert producer.poll() is None, "there was no traffic"
        finally:
            producer.kill()


def answer(up: Up, *arguments: str) -> tuple[int, dict]:
    done = run(*arguments, "-o", "json", namesrv=up.namesrv)
    return done.returncode, json.loads(done.stdout)


def test_a_pair_under_traffic_is_equal_and_then_differs_in_a_byte(tmp_path):
    """More than one file of log; the digests that are there and those that are not yet agree with what the disks hold."""
    with running(tmp_path / "cluster", "--set", "scrubBytesPerSecond=0") as up:
        up.wait_ready()
        wait_for(lambda: all(member["state"] in ("serving", "streaming") for member in up.members()), "the slave")
        up.twinlog("send", "orders", BODY, "--count", "80")
        with traffic(up, "x" * 500):
            status, report = answer(up, "log", "diff", "--live", *MEMBERS)
            assert (status, report["verdict"], report["common_start"]) == (0, "equal", 0)
            assert report["equal_to"] == report["common_end"] > 1 << 20
            status, checked = answer(up, "crosscheck")
            assert (status, checked["verdict"], checked["findings"]) == (0, "agree", [])


def test_a_byte_that_changed_on_the_slave_s_disk_is_found(tmp_path):
    """In a block that has no digest yet: what was written, which digests are of, was the same."""
    with running(tmp_path / "cluster", "--set", "scrubBytesPerSecond=0") as up:
        up.wait_ready()
        wait_for(lambda: all(member["state"] in ("serving", "streaming") for member in up.members()), "the slave")
        up.twinlog("send", "orders", BODY[:20_000], "--count", "5")
        wait_for(
            lambda: answer(up, "log", "diff", "--live", *MEMBERS)[1]["common_end"] > CHANGED_AT, "the log at the slave"
        )
        descriptor = os.open(up.directory / "broker-a-1" / "commitlog" / f"{0:020d}", os.O_RDWR)
        (byte,) = os.pread(descriptor, 1, CHANGED_AT)
        os.pwrite(descriptor, bytes([byte ^ 1]), CHANGED_AT)
        os.close(descriptor)
        status, report = answer(up, "log", "diff", "--live", *MEMBERS)
        assert (status, report["verdict"], report["difference"]["first_offset"]) == (1, "different", CHANGED_AT)
        assert report["difference"]["right"]["problem"] is not None
        status, checked = answer(up, "crosscheck")
        assert (status, [finding["cause"] for finding in checked["findings"]]) == (1, ["logs differ"])

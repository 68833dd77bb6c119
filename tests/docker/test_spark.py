"""Profile `spark` of docker-compose.yml: the image for Spark, and a cluster of containers that works on the brokers' stores."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from tests.docker.compose import NAMESRV_INSIDE, SPARK, Compose, until, until_healthy

BYTES_MAX = 1_100_000_000
MESSAGES = 200
TOPIC = "Orders"
STORES = [f"/stores/broker-a-{number}/broker-a-{number}" for number in range(2)]
MASTER_URL = "spark://spark-master:7077"
pytestmark = pytest.mark.timeout(400)


def test_it_adds_spark_and_nothing_else(daemon, image, spark_image):
    size, below = (daemon.images.get(name).attrs["Size"] for name in (spark_image, image))
    print(f"{spark_image}: {size / 1e6:.0f} MB, {(size - below) / 1e6:.0f} MB of it above {image}")
    assert size < BYTES_MAX
    config = daemon.images.get(spark_image).attrs["Config"]
    assert (config["User"], config["Entrypoint"]) == ("twinlog", ["twinlog-spark"])


def test_kubernetes_entry_starts_the_backend(daemon, spark_image):
    """With the variables that Spark sets in a pod; no driver answers here, and the JVM says so."""
    variables = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_LOCAL_IP": "127.0.0.1",  # Without a network the container's name has none.
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "SPARK_JAVA_OPT_0": "-Dtwinlog.first=1",
        "SPARK_JAVA_OPT_10": "-XX:+PrintCommandLineFlags",
    }
    container = daemon.containers.run(
        spark_image,
        ["executor"],
        environment=variables,
        detach=True,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "exec"},
        cap_drop=["ALL"],
    )
    try:
        assert container.wait(timeout=120)["StatusCode"] != 0
        said = container.logs().decode()
    finally:
        container.remove(force=True)
    assert "-XX:InitialHeapSize=268435456" in said
    assert "Failed to connect to /127.0.0.1:1" in said, said


@pytest.fixture
async def cluster(compose: Compose, spark_image: str):
    """Running brokers and two workers; what is up already stays as it is."""
    services = ("namesrv", "broker-a-0", "broker-a-1", *SPARK)
    compose("--profile", "spark", "up", "-d", *services)
    await until_healthy(compose, *services, seconds_max=200)  # Three JVMs, on a machine that does much else.
    compose.twinlog("broker-a-0", "wait", "healthy", "members=2", "--timeout", "50")
    return compose


def send(cluster: Compose, topic: str) -> None:
    cluster.twinlog("broker-a-0", "send", topic, "hello", "--count", str(MESSAGES), "--batch", "20")


@pytest.mark.long  # tests/spark_cluster has workers that are processes.
async def test_two_workers_audit_running_brokers(cluster: Compose):
    send(cluster, "Audited")
    done = cluster.twinlog("spark-master", "audit", *STORES, "--spark-master", MASTER_URL, "-o", "json")
    report = json.loads(done)
    assert report["verdict"] == "equal", report
    assert [member["problem"] for member in report["members"]] == [None, None]


@pytest.mark.long
async def test_two_workers_read_a_topic(cluster: Compose):
    """One of them is killed with its executor while they read: each message is there once."""
    send(cluster, TOPIC)
    collecting = Collecting(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collecting.run)
        await until(lambda: len(collecting.batches()) >= 3, "the first batches", seconds_max=180)
        cluster.signal_inside("spark-worker-1", "KILL")
        before = len(collecting.batches())
    rows = [tuple(row) for batch in collecting.batches() for row in batch]
    assert len(collecting.batches()) > before + 3, "it was killed in the middle"
    assert len(set(rows)) == len(rows) == MESSAGES


@frozen
class Collecting:
    """collect_topic.py in the master's container."""

    compose: Compose

    async def run(self) -> None:
        script = b64encode(Path(__file__).with_name("collect_topic.py").read_bytes()).decode()
        settings = {"driver.host": "spark-master", "executor.memory": "512m", "ui.enabled": "false"}
        told = " ".join(f"--conf spark.{name}={value}" for name, value in settings.items())
        submit = f"spark-submit --master {MASTER_URL} {told} /tmp/collect_topic.py {NAMESRV_INSIDE} {TOPIC} /tmp/out"
        await trio.to_thread.run_sync(self._inside, f"echo {script} | base64 -d > /tmp/collect_topic.py && {submit}")

    def batches(self) -> list[list[list[Any]]]:
        """Rows of each batch that is complete."""
        return [json.loads(line) for line in self._inside("cat /tmp/out/*.json 2>/dev/null || true").splitlines()]

    def _inside(self, script: str) -> str:
        return self.compose.shell("spark-master", script)

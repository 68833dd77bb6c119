"""Profile `spark` of docker-compose.yml: the image for Spark, and a cluster of containers that works on the brokers' stores."""

import json

import pytest

from tests.docker.compose import SPARK, Compose, until_healthy

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


async def test_an_audit_of_running_brokers_by_two_workers(compose: Compose, spark_image: str):
    services = ("namesrv", "broker-a-0", "broker-a-1", *SPARK)
    compose("--profile", "spark", "up", "-d", *services)
    await until_healthy(compose, *services, seconds_max=200)  # Three JVMs, on a machine that does much else.
    compose.twinlog("broker-a-0", "wait", "healthy", "members=2", "--timeout", "50")
    compose.twinlog("broker-a-0", "send", TOPIC, "hello", "--count", str(MESSAGES), "--batch", "20")
    done = compose.twinlog("spark-master", "audit", *STORES, "--spark-master", MASTER_URL, "-o", "json")
    report = json.loads(done)
    assert report["verdict"] == "equal", report
    assert [member["problem"] for member in report["members"]] == [None, None]

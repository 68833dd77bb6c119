"""One container that is a whole RocketMQ, by `docker run` and by testcontainers in Python and Java, as docs/testing.md has it."""

import os
import subprocess
import sys
import time

import pytest

from tests.docker.testcontainers import examples
from tests.support.process_group.ports import free_port
from tests.support.process_group.up import twinlog

pytestmark = pytest.mark.timeout(180)
READY_SECONDS_MAX = 10.0  # scripts/bench containers says how long it takes; here other things run, too.


@pytest.fixture(scope="module")
def class_path(tmp_path_factory) -> str:
    return examples.compiled(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def left(daemon):
    """Containers and volumes are as many after the test as before."""

    def counted() -> tuple[int, int]:
        return len(daemon.containers.list(all=True)), len(daemon.volumes.list())

    before = counted()
    yield
    assert counted() == before


def test_a_client_outside_sends_and_receives_with_nothing_but_docker(daemon, image, left):
    """Through ports that are not those inside: the container tells the published ones."""
    namesrv, broker = free_port(), free_port()
    began = time.monotonic()
    container = daemon.containers.run(
        image,
        ["standalone", "--address", f"127.0.0.1:{broker}", "--topic", "orders"],
        ports={"9876/tcp": ("127.0.0.1", namesrv), "10911/tcp": ("127.0.0.1", broker)},
        detach=True,
        read_only=True,
        tmpfs={"/tmp": ""},
        cap_drop=["ALL"],
    )
    try:
        while not (ready := [line for line in container.logs().decode().splitlines() if line.startswith("ready ")]):
            assert time.monotonic() - began < READY_SECONDS_MAX, container.logs().decode()
            time.sleep(0.02)
        seconds = time.monotonic() - began
        print(f"ready {seconds:.1f} s after `docker run`")
        address = f"127.0.0.1:{namesrv}"
        assert ready == [f"ready namesrv=0.0.0.0:9876 broker=127.0.0.1:{broker}"]
        assert "SEND_OK" in twinlog("send", "orders", "hello", namesrv=address)
        assert "hello" in twinlog("consume", "orders", "--group", "readers", namesrv=address)
        container.stop(timeout=10)
        assert container.wait()["StatusCode"] == 0
    finally:
        container.remove(force=True, v=True)


def test_python(image, left):
    """testcontainers and the client on asyncio."""
    (program,) = examples.blocks("python")
    environment = {**os.environ, **examples.ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "SEND_OK\n"


def test_spring(image, left, class_path):
    """A template sends, a listener receives, in a container made by the page's class."""
    said = examples.java(class_path, "shop.Shop").splitlines()
    assert [line for line in said if line in ("SEND_OK", "order 17", "null")] == ["SEND_OK", "order 17"]


@pytest.mark.long
def test_java_without_a_class_of_its_own(image, left, class_path):
    """What GenericContainer alone can do; the page's class and Spring show the rest."""
    assert "generic SEND_OK" in examples.java(class_path, "Generic", str(free_port())).splitlines()

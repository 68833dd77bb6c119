"""The cluster of docker-compose.yml with its profile `etcd`: three members of etcd keep the record of three brokers."""

import json
from functools import partial

import pytest
import trio

from tests.docker.compose import BROKERS, ROOT, until, until_healthy
from tests.docker.conftest import project
from tests.docker.etcd_image import etcd_image

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
ETCD = ("etcd-0", "etcd-1", "etcd-2")
VARIABLES = dict(
    line.split("=") for line in (ROOT / "deploy/docker/etcd.env").read_text().splitlines() if not line.startswith("#")
)


async def test_a_group_goes_on_with_one_broker_and_without_one_etcd(image, daemon):
    variables = {**VARIABLES, "ETCD_IMAGE": etcd_image(daemon)}
    with project(variables=variables) as compose:
        await trio.to_thread.run_sync(partial(compose, "up", "-d"))
        await until_healthy(compose, *BROKERS, *ETCD)

        def in_sync() -> set[str]:
            found = json.loads(compose.twinlog("broker-a-0", "list", "-o", "json"))["in_sync_sets"]
            return {name for each in found for name in each["in_sync"]}

        await until(lambda: in_sync() == set(BROKERS), "all are in sync")
        compose("kill", "etcd-0", "broker-a-1", "broker-a-2")
        await until(lambda: in_sync() == {"broker-a-0"}, "the set shrinks to the master")
        assert compose.twinlog("broker-a-0", "send", "Greetings", "hello").startswith("SEND_OK")
        compose("start", "broker-a-1", "broker-a-2")
        await until(lambda: in_sync() == set(BROKERS), "the others are back")

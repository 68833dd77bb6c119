"""Tests of twinlog.client that run on each event loop, most of them against each of three brokers.

A coroutine here runs once on asyncio and once on trio, or on the loops that `@pytest.mark.loops` names: pytest-trio, which runs
the other coroutines of this project, knows trio only. A `client` among its arguments was made outside of the loop, and is entered
before the test begins.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import anyio
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.python_client.helpers import ACCOUNT, create_topic
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from twinlog.client import Client, make_signer

HERE = Path(__file__).parent
SECONDS_MAX = 50
BROKERS = ("twinlog", "rocketmq-4", "rocketmq-5")
BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "loops(*names): event loops on which a coroutine runs; else asyncio and trio")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if iscoroutinefunction(metafunc.function):
        mark = metafunc.definition.get_closest_marker("loops")
        metafunc.fixturenames.append("loop")
        metafunc.parametrize("loop", mark.args if mark else ("asyncio", "trio"))


@pytest.hookimpl(tryfirst=True)  # Before pytest-trio marks coroutines as its own.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.obj = partial(_run, item, item.obj)


def _run(item: pytest.Function, test: Callable[..., Awaitable[None]], **arguments: Any) -> None:
    async def main() -> None:
        with anyio.fail_after(SECONDS_MAX):
            async with AsyncExitStack() as stack:
                for each in arguments.values():
                    if isinstance(each, Client):
                        await stack.enter_async_context(each)
                if "topic" in arguments:
                    await create_topic(arguments["client"], item.funcargs["broker"].address, arguments["topic"])
                await test(**arguments)

    backend, options = BACKENDS[item.callspec.params["loop"]]
    anyio.run(main, backend=backend, backend_options=options)


class ByBroker(LoadScopeScheduling):
    """The tests of a broker run in one worker of pytest-xdist, which has started it; of others each function does."""

    def _split_scope(self, nodeid: str) -> str:
        function, _, parameters = nodeid.partition("[")
        return next((kind for kind in BROKERS if kind in parameters), function)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByBroker:
    return ByBroker(config, log)


# Every delay is a second: messages come again, and die, within a test's time. Requests have to be signed.
SETTINGS = {
    **TEST_SETTINGS,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "enablePropertyFilter": "true",
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key}
    ),
}
AUTH = "org.apache.rocketmq.auth.authentication.provider"


def _settings(kind: str, root: Path) -> dict[str, str]:
    if kind == "rocketmq-5":
        user = {"username": ACCOUNT.access_key, "password": ACCOUNT.secret_key}
        return SETTINGS | {
            "authenticationEnabled": "true",
            "authenticationProvider": f"{AUTH}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{AUTH}.LocalAuthenticationMetadataProvider",
            "authConfigPath": str(root / "auth"),
            "initAuthenticationUser": json.dumps(user),
            "transactionOpBatchInterval": "100",  # A decision counts when its batch is stored: 3 s later by default.
        }
    rules = root / "broker" / "conf" / "plain_acl.yml"
    rules.parent.mkdir(parents=True)
    keys = {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key, "admin": True}
    rules.write_text(json.dumps({"accounts": [keys]}))  # JSON is YAML.
    ours = {"rocketmqHome": str(root / "broker"), "tls.server.mode": "permissive"} if kind == "twinlog" else {}
    return SETTINGS | {"aclEnable": "true"} | ours


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A single ASYNC_MASTER behind a name server of its kind."""
    kind: str = request.param
    root = tmp_path_factory.mktemp(kind)
    settings = _settings(kind, root)
    if kind == "twinlog":
        with (
            twinlog.NameServer(root / "namesrv") as namesrv,
            twinlog.Broker(root / "broker", namesrv.address, settings=settings) as ours,
        ):
            yield ours
        return
    version = jars.VERSION if kind == "rocketmq-4" else jars.VERSION_5
    with (
        rocketmq.NameServer(root / "namesrv", version=version) as real_namesrv,
        rocketmq.Broker(root / "broker", real_namesrv.address, version=version, settings=settings) as real,
    ):
        yield real


@pytest.fixture
def client(broker: BrokerProcess) -> Client:
    return Client(broker.namesrv, sign=make_signer(ACCOUNT))


@pytest.fixture
def other(broker: BrokerProcess) -> Client:
    """A second client, as of another process."""
    return Client(broker.namesrv, sign=make_signer(ACCOUNT))


@pytest.fixture
def topic() -> str:
    """One of four queues, used by no other test; groups get its name, too."""
    return f"T-{uuid.uuid4().hex[:12]}"

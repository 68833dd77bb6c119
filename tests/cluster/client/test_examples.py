"""Examples of the documentation are run unchanged: the page of the client library, and docstrings."""

import ast
import doctest
import re
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
import trio

import twinlog.client
import twinlog.cluster.client
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.store.config import StoreConfig

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
MODULES = [each.name for each in walk_packages(twinlog.cluster.client.__path__, "twinlog.cluster.client.")]


@pytest.fixture
async def namesrv(tmp_path, nursery):
    """The address of a name server that has one broker."""
    port = await nursery.start(NameServer().run, "127.0.0.1", 0)
    address = f"127.0.0.1:{port}"
    config = BrokerConfig(
        broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=free_broker_port(), namesrv_addr=address
    )
    broker = wiring.make_broker(config, StoreConfig(root=tmp_path, mapped_file_size_commit_log=1 << 20))
    await nursery.start(broker.run)
    with trio.fail_after(5):
        await broker.registration.registered.wait()
    return address


async def run(example: str, namesrv: str) -> None:
    """Run it like the body of an async function."""
    source = example.replace("127.0.0.1:9876", namesrv)
    compiled = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "example"}
    result = eval(compiled, names)
    if result is not None:
        await result


@pytest.mark.slow
async def test_the_examples_of_the_page_run_one_after_the_other(namesrv, capsys):
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        with trio.fail_after(20):
            await run(example, namesrv)
    printed = capsys.readouterr().out
    assert "SEND_OK broker-a" in printed
    assert "Greetings" in printed
    assert "b'fine'" in printed


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module):
    assert doctest.testmod(import_module(module)).failed == 0


def test_every_public_name_has_a_docstring():
    for name in twinlog.client.__all__:
        assert textwrap.dedent(getattr(twinlog.client, name).__doc__ or ""), name

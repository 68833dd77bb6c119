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
from tests.helpers import docs_extension
from tests.support.group.loopback import open_cluster

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
MODULES = [each.name for each in walk_packages(twinlog.cluster.client.__path__, "twinlog.cluster.client.")]


@pytest.fixture
async def namesrv(tmp_path, nursery):
    """The address of a name server that has one broker."""
    cluster = await open_cluster(nursery, tmp_path)
    await cluster.start("broker-a-0")
    return cluster.namesrv


async def run(example: str, namesrv: str) -> None:
    """Run it like the body of an async function."""
    source = example.replace("127.0.0.1:9876", namesrv)
    compiled = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "example"}
    if "SyncClient" in example:  # It blocks; the broker is in this thread.
        await trio.to_thread.run_sync(eval, compiled, names)
        return
    result = eval(compiled, names)
    if result is not None:
        await result


@pytest.mark.slow
async def test_the_examples_of_the_page_run_one_after_the_other(namesrv, capsys):
    assert len(EXAMPLES) == 7
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


def test_every_public_error_says_what_to_do_next():
    """The reference lists them with it."""
    names = [getattr(twinlog.client, name) for name in twinlog.client.__all__]
    errors = {each for each in names if isinstance(each, type) and issubclass(each, Exception)} - {
        twinlog.client.UserError
    }
    assert errors == {each for each in errors if vars(each).get("next_step")}
    assert all(issubclass(each, twinlog.client.RemotingError) for each in errors)
    table = docs_extension("client_api").errors("twinlog.client")
    assert table.index("`RemotingError`") < table.index("&emsp;[`NoRouteError`]") < table.index("[`UserError`]")


def test_every_public_name_has_a_docstring():
    for name in twinlog.client.__all__:
        assert textwrap.dedent(getattr(twinlog.client, name).__doc__ or ""), name

"""The file of contexts: what is written is what is read, whatever the names."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.config.contexts import Context, ContextError, Contexts, contexts_path, load_contexts, save_contexts

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=3), TEXT, st.booleans())
def test_what_is_written_is_read(tmp_path_factory, servers, path, tls):
    file = tmp_path_factory.mktemp("contexts") / "twinlog" / "config.toml"
    found = Path("/x") / path.strip("/~")
    context = Context(name="a.b-c", name_servers=tuple(servers), credentials=found, tls=tls, secret_file=found)
    contexts = Contexts().with_context(context)
    save_contexts(file, contexts)
    assert load_contexts(file) == contexts


def test_the_first_is_in_use_until_it_is_removed():
    contexts = Contexts().with_context(Context(name="a", name_servers=("h:1",)))
    contexts = contexts.with_context(Context(name="b", name_servers=("h:2",)))
    assert contexts.current == "a"
    assert contexts.without("b").current == "a"
    assert contexts.without("a").current is None
    with pytest.raises(ContextError, match="there are: a, b"):
        contexts.find("c")


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "contexts = 1",
        "[contexts.a]",
        '[contexts.a]\nname_servers = "h:1"',
        "[contexts.a]\nname_servers = []\npassword = 1",
        'current = "b"',
    ],
)
def test_a_file_that_cannot_be_is_told_with_what_to_do(tmp_path, text):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ContextError) as caught:
        load_contexts(file)
    assert caught.value.next_step


def test_no_file_is_no_contexts(tmp_path):
    assert load_contexts(tmp_path / "none") == Contexts()


def test_where_it_lies():
    assert contexts_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/twinlog/config.toml")
    assert contexts_path({"XDG_CONFIG_HOME": "relative"}) == Path.home() / ".config/twinlog/config.toml"

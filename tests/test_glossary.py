"""Help, log events and pages use the words of docs/internals/glossary.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from twinlog.cluster.cli.main import cli

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs/internals/glossary.md"
sys.path.insert(0, str(ROOT / "docs/_ext"))
import logs  # noqa: E402

CODE = re.compile(r"```.*?```|`[^`]*`|^ {4}[^\n]*", re.DOTALL | re.MULTILINE)


def replaced() -> dict[str, str]:
    """Each word that is not used, with the one that is."""
    text = GLOSSARY.read_text().partition("## Words that are not used")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    return {word.strip(): used for words, used in rows if words not in ("not", "---") for word in words.split(",")}


REPLACED = replaced()
PATTERN = re.compile(rf"\b({'|'.join(map(re.escape, REPLACED))})(s|ed|ing)?\b", re.IGNORECASE)


def wrong_words(text: str) -> list[str]:
    """The words of a text that the glossary replaces, each with the word to use."""
    return [f"{match[0]}: {REPLACED[match[1].lower()]}" for match in PATTERN.finditer(CODE.sub("", text))]


def commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    with click.Context(command, info_name=path) as context:
        yield path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from commands(child, f"{path} {name}")


def test_the_table_is_read():
    assert REPLACED["lobby"] == "pending connection"
    assert wrong_words("It waits in the lobby, with other guests, but `lobby` is code.") == [
        "lobby: pending connection",
        "guests: pending connection",
    ]


def test_help():
    texts = dict(commands(cli, "twinlog"))
    assert len(texts) > 50
    assert {path: found for path, text in texts.items() if (found := wrong_words(text))} == {}


def test_log_events():
    files = [file for section in logs.SECTIONS for file in logs.files(section)]
    names = {name for file in files for event in logs.events_in(file) for name in event.names or ()}
    assert len(names) > 100
    assert {name: found for name in names if (found := wrong_words(name))} == {}


@pytest.mark.parametrize(
    "page",
    sorted(page for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if page != GLOSSARY),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_pages(page: Path):
    assert wrong_words(page.read_text()) == []

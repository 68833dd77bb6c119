"""The tour names files that are there, and functions that are in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/internals/tour.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
FILES_MAX = 17  # Of one way: more is no tour.
STOP = re.compile(r"\| (\d+) \| `([\w/]+\.py)` \| (.*) \|")


def test_it_has_the_four_ways():
    assert list(SECTIONS) == ["A SEND", "An acknowledgement of a slave", "A pull", "A role change"]


@pytest.mark.parametrize("name", SECTIONS)
def test_each_stop_is_a_file_that_is_there(name):
    stops = STOP.findall(SECTIONS[name])
    assert [int(number) for number, _, _ in stops] == list(range(1, len(stops) + 1))
    assert 5 <= len(stops) <= FILES_MAX
    for file in re.findall(r"`([\w/]+/[\w]+\.py)`", SECTIONS[name]):
        assert (ROOT / file).is_file(), file


@pytest.mark.parametrize("name", SECTIONS)
def test_what_a_stop_names_is_in_its_file(name):
    for _, file, text in STOP.findall(SECTIONS[name]):
        source = (ROOT / file).read_text()
        for word in re.findall(r"`([\w.]+)`", text.replace(".py`", "")):
            if "/" not in word:
                assert word.rpartition(".")[2] in source, f"{file} has no {word}"

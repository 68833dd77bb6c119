"""Tables for a terminal and a pipe."""

import sys

import click
import pytest

from twinlog.cluster.cli.common.render import Column, fitting, plain, table


def test_columns_are_as_wide_as_their_widest_cell():
    columns = [Column("NAME", str), Column("N", str, right=True)]
    assert plain(columns, [["a", "100"], ["longer", "1"]]) == "NAME      N\na       100\nlonger    1"


@pytest.mark.parametrize(("width", "titles"), [(18, "ABCD"), (17, "ABD"), (9, "AB"), (3, "AB")])
def test_a_narrow_terminal_leaves_out_what_can_be_spared(width, titles):
    columns = [Column("A", str), Column("B", str), Column("C", str, spare=2), Column("D", str, spare=1)]
    kept = fitting(columns, [["1", "22", "333333", "444"]], width)
    assert "".join(columns[i].title for i in kept) == titles


def test_nothing_is_cut_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    columns = [Column("NAME", str), Column("SPARED", str, spare=1), Column("WIDE", str, wide=True)]
    name = "a" * 25
    table(columns, [name], "pretty")
    words = click.unstyle(capsys.readouterr().out)
    assert name in words
    assert "for lack of space: SPARED; -o wide" in " ".join(words.split())
    table(columns, [name], "wide")
    assert f"{name}  {name}  {name}" in click.unstyle(capsys.readouterr().out)

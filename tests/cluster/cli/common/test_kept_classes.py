"""Compiled methods of attrs' classes outlive the process: taken from the file they do what they did, and bad files do no harm."""

import sys
from importlib import import_module

import attr
import pytest
from attrs import field, frozen

from twinlog.cluster.cli.common import kept_classes as kept
from twinlog.cluster.cli.common.kept_classes import kept_classes


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "kept.attrs"


def make_class(path, default=2):
    with kept_classes(path):

        @frozen
        class Point:
            x: int
            y: int = field(default=default, converter=int)

    return Point


@pytest.fixture
def compiled(monkeypatch):
    """The texts that were compiled, not taken from a file."""
    texts = []

    def recorded(text, *rest):
        texts.append(text)
        return compile(text, *rest)

    monkeypatch.setattr(kept, "compile", recorded, raising=False)
    return texts


def test_a_class_from_the_file_is_as_the_first_one(path, compiled):
    make_class(path)
    assert len(compiled) == 1
    again = make_class(path, default=3)  # A default is no part of the text.
    assert len(compiled) == 1
    assert (again(1), again(1, "5")) == (again(1, 3), again(1, 5))
    assert repr(again(1)).endswith("Point(x=1, y=3)")
    assert len({again(1), again(1, 3), again(2)}) == 2
    assert again(1) != make_class(path)(1, 3)  # Classes of their own all the same.


def test_attrs_itself_is_as_before_afterwards(path):
    before = attr._make._compile_and_eval
    with pytest.raises(ModuleNotFoundError), kept_classes(path):
        import_module("twinlog.none")
    assert attr._make._compile_and_eval == before


@pytest.mark.parametrize("damage", [b"", bytes(4), bytes(100), b"\x01"], ids=["empty", "a sum", "zeros", "short"])
def test_a_damaged_file_is_written_anew(path, compiled, damage):
    make_class(path)
    good = path.read_bytes()
    path.write_bytes(damage)
    assert make_class(path)(1).y == 2
    assert (len(compiled), path.read_bytes()) == (2, good)


def test_a_flipped_bit_is_noticed(path, compiled):
    make_class(path)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    make_class(path)
    assert len(compiled) == 2


def test_nothing_is_written_where_python_keeps_nothing(path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert make_class(path)(1).y == 2
    assert not path.exists()


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path):
    assert make_class(tmp_path / "none" / "kept.attrs")(1).y == 2


def test_methods_of_old_sources_go(path, monkeypatch):
    monkeypatch.setattr(kept, "KEPT_MAX", 1)

    def make(name):
        with kept_classes(path):
            attr.make_class(name, ["x"])

    for name in ("A", "B", "C"):
        make(name)
    assert len(kept._read(path)) == 1


def test_another_attrs_is_left_alone(path, monkeypatch):
    monkeypatch.delattr(attr._make, "_compile_and_eval")
    with kept_classes(path):
        pass
    assert not path.exists()

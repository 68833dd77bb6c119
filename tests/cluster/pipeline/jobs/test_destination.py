"""Where an export may write: decided from what lies there, without Spark."""

from pathlib import Path

import pytest
from attrs import evolve

from twinlog.cluster.pipeline.jobs.destination import MARKER, Marker, check_destination, read_marker, write_marker
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import UnreadableError

WANTED = Marker(format="parquet", source="store", topics=("orders",), bad="")


def check(
    root: Path, wanted: Marker = WANTED, *, checkpoint: str = "out/_checkpoint", bad: str = "out-bad"
) -> Marker | None:
    return check_destination(wanted, str(root / "out"), str(root / checkpoint), str(root / bad))


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)


def test_a_new_place_and_an_export_that_goes_on(tmp_path):
    assert check(tmp_path) is None
    marked = evolve(WANTED, schema={"type": "struct", "fields": []})
    write_marker(str(tmp_path / "out"), marked)
    assert read_marker(str(tmp_path / "out")) == marked
    assert check(tmp_path) == marked  # It was stopped before its first batch.
    make(tmp_path, "out/topic=orders", "out/_checkpoint/offsets")
    (tmp_path / "out/_checkpoint/offsets/0").touch()
    assert check(tmp_path) == marked


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"format": "delta"}, "the format is parquet there, and delta here"),
        ({"source": "cluster"}, "the source is a store there, and a cluster here"),
        ({"topics": ("orders", "refunds")}, "the topic is orders there, and orders, refunds here"),
        ({"bad": "/elsewhere"}, "the place of bad rows is the default there, and /elsewhere here"),
    ],
)
def test_another_export_is_refused(tmp_path, difference, words):
    write_marker(str(tmp_path / "out"), WANTED)
    with pytest.raises(ReadRefusedError, match=f"out holds another export: {words}"):
        check(tmp_path, evolve(WANTED, **difference))


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (["out/topic=orders"], "holds topic=orders, which is of no export"),
        (["out/_spark_metadata"], r"written by twinlog 0.2, or by a stream of Spark's"),
        (["out/_delta_log"], "holds _delta_log, which is of no export"),
        (["out-bad/_delta_log"], r"out-bad is for bad rows, and holds no parquet table"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path, there, words):
    make(tmp_path, *there)
    with pytest.raises(ReadRefusedError, match=words):
        check(tmp_path)


def test_output_and_checkpoint_belong_together(tmp_path):
    make(tmp_path, "progress/offsets", "out/topic=orders")
    (tmp_path / "progress/offsets/0").touch()
    write_marker(str(tmp_path / "out"), WANTED)
    with pytest.raises(ReadRefusedError, match=r"holds an export already, which is not in .*/other"):
        check(tmp_path, checkpoint="other")
    with pytest.raises(ReadRefusedError, match="is the checkpoint of another output"):
        check_destination(WANTED, str(tmp_path / "new"), str(tmp_path / "progress"), str(tmp_path / "bad"))


def test_bad_rows_lie_apart(tmp_path):
    for place in ("out", "out/bad", "."):
        with pytest.raises(ReadRefusedError, match="bad rows would go to"):
            check(tmp_path, bad=place)


def test_a_marker_that_cannot_be_understood(tmp_path):
    make(tmp_path, "out")
    for text, words in (
        ("{", "no file of an export"),
        ('{"version": 1}', "no file of an export"),
        ('{"version": 2}', "of a later version"),
    ):
        (tmp_path / "out" / MARKER).write_text(text)
        with pytest.raises(ReadRefusedError, match=words):
            check(tmp_path)


def test_places_that_only_spark_knows_are_not_checked(tmp_path):
    assert check_destination(WANTED, "wasb://a/out", "wasb://a/out/_checkpoint", "wasb://a/out-bad") is None
    write_marker("wasb://a/out", WANTED)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UnreadableError):
        write_marker(str(tmp_path / "out"), WANTED)

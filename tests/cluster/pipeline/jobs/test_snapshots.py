"""Copies of consumerOffset.json, as the daily report takes them."""

import pytest

from twinlog.cluster.pipeline.jobs.snapshots import read_snapshots
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError


def test_snapshots_that_are_none_are_named(tmp_path):
    with pytest.raises(ReadRefusedError, match="no snapshots"):
        read_snapshots(str(tmp_path))
    (tmp_path / "consumerOffset.json").write_text("{}")
    with pytest.raises(ReadRefusedError, match="its name has no time"):
        read_snapshots(str(tmp_path))
    (tmp_path / "consumerOffset.json").rename(tmp_path / "20261122T130500Z.json")
    with pytest.raises(ReadRefusedError, match=r"no consumerOffset\.json"):
        read_snapshots(str(tmp_path))
    (tmp_path / "20261122T130500Z.json").write_text('{"offsetTable":{"%RETRY%g@g":{0:7}}}')
    (found,) = read_snapshots(str(tmp_path))
    assert found.at_ms == 1795352700000
    assert found.offsets == {("%RETRY%g", "g", 0): 7}


def test_snapshots_come_in_order_of_time(tmp_path):
    for name in ("b-20261122T130501Z.json", "a-1795352702000.json", "20261122T130500Z-c.json"):
        (tmp_path / name).write_text('{"offsetTable":{}}')
    (tmp_path / "readme.txt").write_text("no snapshot")
    assert [each.at_ms for each in read_snapshots(str(tmp_path))] == [1795352700000, 1795352701000, 1795352702000]

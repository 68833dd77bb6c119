"""Lag of a query, from what Spark tells of its sources."""

from types import SimpleNamespace

import pytest

from twinlog.cluster.pipeline.topics.progress import SourceLag, lag_of


def progress(*latest):
    return SimpleNamespace(sources=[SimpleNamespace(latestOffset=each) for each in latest])


@pytest.mark.parametrize(
    ("told", "lag"),
    [
        (None, None),
        (progress(), None),
        (progress(None, "null", "7", '{"topic": {"0": 7}}', "x"), None),
        (progress('{"queues": {}, "lag": {"messages": 3, "ms": 50}}'), SourceLag(3, 50)),
        (progress('{"lag": {"messages": 3, "ms": 50}}', {"lag": {"messages": 4, "ms": 9}}, None), SourceLag(7, 50)),
    ],
)
def test_lag_is_that_of_all_our_sources(told, lag):
    assert lag_of(told) == lag

"""Lag of a query, from its progress: Spark's Python sources have no metrics of their own. No I/O.

The source puts its lag beside the latest offsets, which Spark has in each progress under `sources[].latestOffset`.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import frozen


@frozen
class SourceLag:
    """Messages that are not in a batch yet, and the age of the oldest of them in ms, when the last batch was planned."""

    messages: int
    ms: int


def lag_of(progress: Any) -> SourceLag | None:
    """The lag of all sources of format rocketmq together; None if the query has none, or has planned nothing yet.

    `progress`: query.lastProgress, or event.progress of a StreamingQueryListener.
    """
    found = [lag for source in (progress.sources if progress is not None else ()) if (lag := _lag(source.latestOffset))]
    return SourceLag(sum(lag.messages for lag in found), max(lag.ms for lag in found)) if found else None


def _lag(latest: str | Mapping[str, Any] | None) -> SourceLag | None:
    try:
        value = orjson.loads(latest) if isinstance(latest, str) else latest
        lag = (value or {})["lag"]
        return SourceLag(int(lag["messages"]), int(lag["ms"]))
    except (ValueError, KeyError, TypeError):
        return None

"""Columns for tests, made from entries."""

import numpy as np

from twinlog.store.record.columns import Columns, KeyColumns
from twinlog.store.record.keys import keys_of
from twinlog.store.record.scan import DispatchEntry


def columns_of(entries: list[DispatchEntry]) -> Columns:
    topics = sorted({entry.topic for entry in entries})
    numbers = [[topics.index(entry.topic), *entry[1:8]] for entry in entries]
    fields = np.array(numbers, np.int64).reshape(len(entries), 8).T
    return Columns(topics, *fields, KeyColumns(*(np.array(part, np.int64) for part in keys_of(entries))))

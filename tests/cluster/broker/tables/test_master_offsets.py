"""Which consumer offsets a slave takes from its master: a table of cases for one queue."""

import pytest

from twinlog.cluster.broker.tables.offsets import MasterOffsets

KEY = "T1@CG1"


@pytest.mark.parametrize(
    ("own", "told", "now", "restarted", "wanted"),
    [
        (5, 5, 8, False, 8),  # Consumers go on at the master.
        (9, 5, 5, False, 9),  # They went on here, while it could not be reached.
        (9, 5, 8, False, 9),
        (9, 5, 12, False, 12),
        (5, 5, 2, False, 2),  # A reset.
        (9, 5, 2, False, 2),
        (5, 5, 2, True, 5),  # It came back with an older file.
        (9, 5, 5, True, 9),
        (9, 5, 12, True, 12),
    ],
)
def test_one_queue(own, told, now, restarted, wanted):
    offsets = MasterOffsets()
    offsets.merge({}, {KEY: {0: told}}, life=1)
    merged, newer = offsets.merge({KEY: {0: own}}, {KEY: {0: now}}, life=2 if restarted else 1)
    assert merged == {KEY: {0: wanted}}
    assert newer == (wanted > now)


def test_queues_and_groups_that_only_one_of_them_knows():
    own = {KEY: {0: 3}, "T2@CG1": {0: 1}}
    merged, newer = MasterOffsets().merge(own, {KEY: {1: 4}, "T3@CG1": {0: 2}}, life=1)
    assert merged == {KEY: {0: 3, 1: 4}, "T3@CG1": {0: 2}}
    assert newer == 0
    assert own == {KEY: {0: 3}, "T2@CG1": {0: 1}}

"""Who must leave when there are too many connections."""

import pytest

from ha.accept import Seat, victim

STRANGER, STRANGER_WITH_REQUEST = Seat(False, False), Seat(False, True)
WAITING, SLAVE = Seat(True, False), Seat(True, True)


@pytest.mark.parametrize(
    ("seats", "for_stranger", "for_slave"),
    [
        ([], None, None),
        ([SLAVE, SLAVE], None, None),
        ([SLAVE, STRANGER, STRANGER], 1, 1),
        ([STRANGER_WITH_REQUEST, STRANGER], 1, 1),
        ([SLAVE, STRANGER_WITH_REQUEST, STRANGER_WITH_REQUEST], None, 1),
        ([SLAVE, WAITING, STRANGER_WITH_REQUEST], None, 2),
        ([SLAVE, WAITING, WAITING], None, 1),
    ],
)
def test_victims(seats, for_stranger, for_slave):
    assert victim(seats, newcomer_registered=False) == for_stranger
    assert victim(seats, newcomer_registered=True) == for_slave

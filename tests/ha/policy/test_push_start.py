"""Where a stream begins."""

import pytest

from twinlog.ha.errors import HARefusedError
from twinlog.ha.policy.push_start import push_start


@pytest.mark.parametrize(
    ("requested", "start"),
    [
        (0, 2048),  # An empty slave gets the first file that is left; RocketMQ would send the last one only.
        (2048, 2048),
        (2049, 2049),  # Inside a record: normal for a RocketMQ slave.
        (5000, 5000),
    ],
)
def test_requests_that_are_served(requested, start):
    assert push_start(requested, 2048, 5000, 1024) == start


@pytest.mark.parametrize(
    ("requested", "cause", "complaint"),
    [
        (-1, "bad_request", "offset -1"),
        (-(2**63), "bad_request", "offset -"),
        (5001, "over_max", "1 bytes that this master lacks"),
        (2**63 - 1, "over_max", "lacks"),
        (1, "below_min", "begins at 2048"),
        (2047, "below_min", "begins at 2048"),
    ],
)
def test_requests_that_cannot_be_served(requested, cause, complaint):
    with pytest.raises(HARefusedError, match=complaint) as refused:
        push_start(requested, 2048, 5000, 1024)
    assert refused.value.cause == cause


def test_an_empty_log_serves_an_empty_slave():
    assert push_start(0, 0, 0, 1024) == 0

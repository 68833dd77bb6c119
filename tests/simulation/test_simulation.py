"""A hundred seeds, `scripts/simulate` plays more: whatever happens to the members and their network, what was promised holds."""

import pytest

from tests.simulation.run import Job, described

SEEDS, CHUNK = 100, 50


@pytest.mark.timeout(240)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds(pool, first):
    failed = [each for each in pool.run(map(Job, range(first, first + CHUNK))) if each["violation"]]
    if failed:
        pytest.fail("\n\n".join(map(described, failed)), pytrace=False)

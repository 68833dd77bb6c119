"""Six rounds of kill -9, failover, return and rewind lose nothing that was acknowledged. The seed is printed with a failure."""

import pytest

from tests.roles.rounds import run_rounds

pytestmark = [pytest.mark.timeout(200), pytest.mark.long]
ROUNDS, SEED = 6, 20261122


async def test_six_rounds_of_kill_failover_return_and_rewind(tmp_path):
    print(f"seed {SEED}")
    told = await run_rounds(tmp_path, ROUNDS, SEED)
    print(told)
    assert told["acknowledged"] >= 200
    assert len({each["killed"] for each in told["rounds"]}) > 1

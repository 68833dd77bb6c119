"""A running `twinlog up` for tests that do not care how it starts and ends."""

import pytest

from tests.support.process_group.up import running


@pytest.fixture
def up(tmp_path):
    with running(tmp_path / "data") as started:
        started.wait_ready()
        yield started

"""Groups of members with roles, in virtual time."""

import pytest

from tests.ha.conftest import no_threads as no_threads
from tests.support.group.group import ASYNC
from tests.support.group.stores import role_group


@pytest.fixture
async def pair(tmp_path, autojump_clock, nursery):
    """A master and a slave, of which both have to hold a message."""
    group = role_group(nursery, tmp_path)
    await group.start()
    return group


@pytest.fixture
async def three(tmp_path, autojump_clock, nursery):
    """A master and two slaves, of which two have to hold a message."""
    group = role_group(nursery, tmp_path, size=3)
    await group.start()
    return group


@pytest.fixture
async def asynchronous(tmp_path, autojump_clock, nursery):
    """The same with a master that acknowledges alone."""
    group = role_group(nursery, tmp_path, size=3, role=ASYNC)
    await group.start()
    return group

"""What all scenarios need: virtual time without threads, and a disk that can refuse."""

import os

import pytest

from tests.ha.conftest import no_threads as no_threads
from tests.support.group.group import Group
from tests.support.group.stores import Stores


@pytest.fixture
def refusing_disk(monkeypatch):
    """Writes below the root of a member whose `disk_refuses` is set raise that errno."""
    real = os.pwrite
    members = []

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        for member in members:
            if member.disk_refuses and os.readlink(f"/proc/self/fd/{fd}").startswith(f"{member.root}/"):
                raise OSError(member.disk_refuses, os.strerror(member.disk_refuses))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return members


@pytest.fixture
async def group(nursery, tmp_path):
    made = Group(nursery, tmp_path, Stores)
    yield made
    await made.kill()

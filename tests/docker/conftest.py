"""The image, built once, and a cluster of containers that the tests of a module share."""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.docker.compose import IMAGE, ROOT, Compose, client

PROFILES = ("--profile", "monitoring", "--profile", "spark", "--profile", "etcd", "--profile", "two-groups")


@pytest.fixture(scope="session")
def built() -> str:
    """What scripts/image says in the end: the image of this checkout, its size and its base."""
    done = subprocess.run([ROOT / "scripts" / "image"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def image(built: str) -> str:
    """twinlog:dev."""
    assert built.startswith(f"{IMAGE}: ")
    return IMAGE


@pytest.fixture(scope="session")
def spark_image(image: str) -> str:
    """twinlog:dev-spark, on top of it."""
    done = subprocess.run([ROOT / "scripts" / "image", "--spark"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{image}-spark"


@pytest.fixture(scope="session")
def base(built: str) -> str:
    """The image below it."""
    return built.rpartition(" on ")[2]


@pytest.fixture(scope="session")
def daemon():
    found = client()
    yield found
    found.close()


@pytest.fixture(scope="module")
def compose(image: str) -> Iterator[Compose]:
    """A project, not yet up; what is left of it goes at the end, whatever happened."""
    with project() as found:
        yield found


@contextmanager
def project(**options: Any) -> Iterator[Compose]:
    found = Compose(f"twinlog-test-{uuid.uuid4().hex[:8]}", **options)
    try:
        yield found
    finally:
        found(*PROFILES, "down", "--volumes", "--timeout", "5", check=False)
        found.daemon.close()

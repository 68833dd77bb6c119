"""What scripts, clients and dashboards of others depend on changes only where a commit shows it."""

from difflib import unified_diff

import pytest

from tests.surface import SURFACE, surface


def test_the_public_surface_is_the_committed_one():
    before, now = SURFACE.read_text(), surface()
    if now != before:
        changes = "\n".join(unified_diff(before.splitlines(), now.splitlines(), "committed", "now", n=0, lineterm=""))
        pytest.fail(
            f"{changes}\nIf this is wanted, write the file anew: .venv/bin/python -m tests.surface", pytrace=False
        )

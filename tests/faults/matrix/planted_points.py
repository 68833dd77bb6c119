"""Planted faults that rows notice by what clients were told: see planted.py."""

from tests.faults.matrix import failpoints

assert failpoints  # Its change is listed with the others once it is imported.

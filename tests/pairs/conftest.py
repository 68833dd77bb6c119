"""Fixtures for tests in which a real RocketMQ and twinlog are master and slave of each other."""

from tests.interop.conftest import root as root

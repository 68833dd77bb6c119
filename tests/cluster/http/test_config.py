"""Where HTTP listens, and whether a person chose that."""

import pytest

from twinlog.cluster.http.config import HttpConfig


@pytest.mark.parametrize(
    ("configured", "listen_port", "port"), [(-1, 10911, 10914), (-1, 0, 0), (0, 10911, 0), (80, 10911, 80)]
)
def test_the_port_follows_the_brokers_unless_it_was_named(configured, listen_port, port):
    assert HttpConfig(listen_port=configured).port(listen_port, 3) == port


def test_only_a_port_that_was_named_must_be_had():
    assert [HttpConfig(listen_port=port).is_port_named for port in (-1, 0, 80)] == [False, False, True]


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("host", False),
    ],
)
def test_what_only_this_machine_reaches(address, is_loopback):
    assert HttpConfig(bind_address=address).is_loopback is is_loopback

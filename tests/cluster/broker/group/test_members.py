"""Which slaves count as registered while name servers come and go."""

from twinlog.cluster.broker.group.registration import KEPT_SECONDS, RegisteredSlaves


def test_a_name_server_that_forgot_everybody_takes_no_slave_away():
    """After its restart a RocketMQ slave registers again only within 30 s; its acks must count all the while."""
    slaves = RegisteredSlaves()
    assert slaves.answered({(1, "192.0.2.1"), (2, "192.0.2.2")}, 0.0) == ["192.0.2.1", "192.0.2.2"]
    assert slaves.answered(set(), 30.0) == ["192.0.2.1", "192.0.2.2"]


def test_a_slave_that_stays_away_is_forgotten():
    slaves = RegisteredSlaves()
    slaves.answered({(1, "192.0.2.1"), (2, "192.0.2.2")}, 0.0)
    assert slaves.answered({(2, "192.0.2.2")}, KEPT_SECONDS) == ["192.0.2.2"]


def test_a_slave_that_moved_has_one_voice():
    slaves = RegisteredSlaves()
    slaves.answered({(1, "192.0.2.1")}, 0.0)
    assert slaves.answered({(1, "192.0.2.9")}, 1.0) == ["192.0.2.9"]


def test_two_slaves_with_one_ip_have_two_voices():
    assert RegisteredSlaves().answered({(1, "127.0.0.1"), (2, "127.0.0.1")}, 0.0) == ["127.0.0.1", "127.0.0.1"]

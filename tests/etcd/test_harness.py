"""The harness itself: what tests of etcd and the fault matrix do to its members happens."""

import pytest

from tests.support.process_group.etcd import DEBIAN, NEWEST, EtcdCluster


@pytest.mark.parametrize("version", [DEBIAN, NEWEST], ids=lambda version: version.number)
def test_a_cluster_signs_in_keeps_its_data_and_loses_it(tmp_path, version):
    with EtcdCluster(tmp_path, version=version) as cluster:
        cluster.enable_auth({"twinlog": ("secret", "/twinlog/")})
        user = "twinlog:secret"
        cluster.ctl("put", "/twinlog/a", "1", user=user)
        with pytest.raises(AssertionError, match="permission denied"):
            cluster.ctl("put", "/other", "1", user=user)
        cluster.kill()
        cluster.start()
        assert cluster.ctl("get", "/twinlog/a", "--print-value-only", user=user) == "1\n"
        cluster.lose_data()
        assert cluster.ctl("get", "/twinlog/a") == ""


def test_three_members_elect_another_leader_when_one_is_stopped_or_killed(tmp_path):
    with EtcdCluster(tmp_path, 3) as cluster:
        first = cluster.leader()
        others = cluster.followers()
        first.pause()
        second = cluster.leader(others)
        first.resume()
        first.wait_ready()
        second.kill()
        assert cluster.leader() is not second
        second.start()
        second.wait_ready()

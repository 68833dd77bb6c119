"""`twinlog up --etcd`: a pair on this machine that stays available with one member."""

import signal

import pytest

from tests.support.process_group.etcd import DEBIAN
from tests.support.process_group.up import free_port_base, gone, run, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)


needs_etcd = pytest.mark.skipif(bool(DEBIAN.missing), reason=DEBIAN.missing)


@needs_etcd
def test_a_pair_has_its_record_in_etcd_and_leaves_nothing_behind(tmp_path):
    with running(tmp_path / "cluster", "--etcd") as up:
        up.wait_ready()
        wait_for(lambda: "2 of 2 in sync: broker-a-0, broker-a-1" in up.twinlog("list"), "the record in etcd")
        assert up.member("--name=etcd").name() == "etcd"
        children = up.children()
        up.process.kill()  # Whatever ends it.
        wait_for(lambda: gone(children), "no process is left")


@needs_etcd
@pytest.mark.long
def test_a_group_that_ran_before_is_handed_to_etcd_and_goes_on_alone(tmp_path):
    directory = tmp_path / "cluster"
    with running(directory) as up:
        up.wait_ready()
        assert up.stop() == 0
    with running(directory, "--etcd", "--set", "haMaxTimeSlaveNotCatchup=3000") as up:
        up.wait_ready()
        wait_for(lambda: "2 of 2 in sync" in up.twinlog("list"), "the record in etcd")
        slave = up.member("broker-a-1")
        slave.send_signal(signal.SIGSTOP)  # Killed, it would be started again.
        wait_for(lambda: "one copy: broker-a-0 alone" in up.twinlog("list"), "the set shrinks", timeout_s=40)
        assert up.twinlog("send", "orders", "alone").startswith("SEND_OK")
        slave.send_signal(signal.SIGCONT)
        assert up.stop() == 0
    with running(directory, port_base=up.port_base) as again:
        again.wait_ready()
        wait_for(lambda: "2 of 2 in sync" in again.twinlog("list"), "etcd is started without --etcd, too", timeout_s=40)
        assert again.stop() == 0


def test_without_etcd_installed_it_says_what_to_install(tmp_path):
    (tmp_path / "bin").mkdir()
    done = run(
        *("up", "--etcd", "--dir", str(tmp_path / "data"), "--port-base", str(free_port_base())),
        env={"PATH": str(tmp_path / "bin")},
    )
    assert done.returncode == 2
    assert "etcd is not installed" in done.stderr
    assert "apt install etcd-server" in done.stderr

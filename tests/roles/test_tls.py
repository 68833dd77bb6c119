"""TLS between members, on real processes: requests by tls.members.enable, the HA stream by haTls; introduced member by member."""

from pathlib import Path

import pytest

from tests.cluster.remoting.certificates import Authority
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.process import ProcessFailedError
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread, running
from tests.support.process_group.status import send, status
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

ON = {"haTls": "true", "tls.members.enable": "true"}


def certified(directory: Path) -> dict[str, str]:
    """Settings of a member whose certificate is checked by the others."""
    directory.mkdir(exist_ok=True)
    authority = Authority(directory)
    certificate, key = authority.issue("member")
    key.chmod(0o600)
    return {
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
    }


def over_tls(group: Group) -> set[bool]:
    """What all slaves' connections use, as the master says; as a slave says, it is the same."""
    found = {each["tls"] for each in status(group.master())["slaves"] if each["counted"]}
    followers = [each for each in group.members if each is not group.master()]
    assert found == {status(each)["master"]["tls"] for each in followers}
    return found


def restart(member: RoleBroker, settings: dict[str, str]) -> None:
    """With more in its broker.conf."""
    member.stop()
    member.settings |= settings
    member.configure()
    member.start()


async def test_a_group_over_tls_catches_up_and_changes_its_master(tmp_path):
    """With certificates that are checked: some MB to catch up with, SEND_OK by acknowledgement, there and back in traffic."""
    with running(tmp_path, **certified(tmp_path / "ca"), **ON) as group:
        first, second = group.members
        assert over_tls(group) == {True}
        assert set(send(first.port, "load", 100, size=1000)) == {0}
        second.stop()
        send(first.port, "load", 3, size=1000)
        for _ in range(20):
            send(first.port, "load", 1, size=1_000_000)
        second.start()
        await in_thread(group.wait_healthy)
        wait_for_same_commitlog(first.commit_log, second.commit_log)
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing(2):
            for candidate in (second, first):
                await traffic.more(20)
                await in_thread(group.twinlog, "switchover", "--candidate", candidate.label, "--yes")
                await traffic.more(20)
        await in_thread(group.wait_healthy)
        assert await in_thread(over_tls, group) == {True}
        traffic.check(await traffic.consumed())
        wait_for_same_commitlog(first.commit_log, second.commit_log)
        explained = await in_thread(group.twinlog, "explain", first.label)
        assert "over TLS" in explained.stdout
        listed = await in_thread(group.listed)
        assert listed[second.label]["ha_tls"] is True


@pytest.mark.long
async def test_it_is_introduced_member_by_member(tmp_path):
    """In any order, in traffic, with a switchover in the middle: a slave without haTls uses TLS where its master asks for it."""
    with running(tmp_path, 3) as group:
        first, second, third = group.members
        assert await in_thread(over_tls, group) == {False}
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(10)
            await in_thread(restart, second, ON)
            await in_thread(group.wait_healthy)
            assert {status(each)["master"]["tls"] for each in (second, third)} == {True, False}
            await in_thread(group.twinlog, "switchover", "--candidate", second.label, "--yes")
            await in_thread(group.wait_healthy)
            await traffic.more(10)
            assert await in_thread(over_tls, group) == {True}
            for member in (third, first):
                await in_thread(restart, member, ON)
                await in_thread(group.wait_healthy)
            await traffic.more(10)
        assert await in_thread(over_tls, group) == {True}
        traffic.check(await traffic.consumed())
        for slave in (first, third):
            wait_for_same_commitlog(second.commit_log, slave.commit_log)


async def test_an_authority_that_is_not_trusted_is_refused_until_it_is(tmp_path):
    """Both ends say why; the file that is put right is in use without a restart."""
    settings = certified(tmp_path / "ca")
    with running(tmp_path, **settings, haTls="true") as group:
        first, second = group.members
        trust = tmp_path / "trust.pem"
        trust.write_bytes(Authority(tmp_path, "other").certificate.read_bytes())
        second.stop()
        send(first.port, "load", 1, size=1000)
        restart(second, {"tls.client.trustCertPath": str(trust)})
        says = "haTls=true here, and there is no TLS connection to the master's HA port: the certificate is not trusted"
        await in_thread(wait_for, lambda: says in (status(second)["master"]["lastError"] or ""), "the slave's word")
        await in_thread(wait_for, lambda: "unknown ca" in first.log.read_text(), "the master's word")
        assert not [each for each in status(first)["slaves"] if each["counted"]]
        assert status(second)["master"]["tls"] is False
        trust.write_bytes(trust.read_bytes() + (tmp_path / "ca" / "authority.pem").read_bytes())
        await in_thread(group.wait_healthy)
        assert await in_thread(over_tls, group) == {True}
        wait_for_same_commitlog(first.commit_log, second.commit_log)


def test_a_member_that_takes_no_tls_is_named_with_its_option(tmp_path):
    with running(tmp_path) as group:
        first, second = group.members
        restart(second, {"tls.server.mode": "disabled"})
        group.wait_healthy()
        restart(first, {"tls.members.enable": "true"})
        says = (
            f"{second.address}: no TLS connection: the server closed the connection: is tls.server.mode=disabled there?"
        )
        first.wait_until(lambda: says in first.log.read_text(), "what it says of the other one")
        for option in ON:
            with pytest.raises(ProcessFailedError, match="before its ready line"):
                restart(second, {**dict.fromkeys(ON, "false"), option: "true"})
            assert f"{option}=true with tls.server.mode=disabled" in second.tail(1)
        restart(second, {"tls.server.mode": "permissive", **ON})
        restart(first, ON)
        group.wait_healthy()

"""What etcd and its gateway refuse, each with its cause; nothing of it may be taken for an outage, nor for a lost swap."""

import re
from pathlib import Path

import pytest

from tests.cluster.remoting.certificates import Authority
from tests.etcd.clients import config_of, refusal
from tests.support.process_group.etcd import EtcdCluster, Tls
from twinlog.cluster.etcd.client import Etcd
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.etcd.diagnose import diagnose
from twinlog.cluster.etcd.errors import EtcdError, Refused, Unavailable
from twinlog.cluster.etcd.protocol import ABSENT, Swapped

PAGE = Path(__file__).parents[2] / "docs/reference/etcd.md"
USER = ("twinlog", "secret")
NOTHING = {"cert_file": None, "key_file": None}


async def test_a_gateway_that_is_off(tmp_path, version):
    with EtcdCluster(tmp_path, version=version, flags=["--enable-grpc-gateway=false"]) as cluster:
        assert await refusal(config_of(cluster)) == "gateway off"


async def test_sign_in(tmp_path, version):
    with EtcdCluster(tmp_path, version=version) as cluster:
        async with Etcd(config_of(cluster, signed=USER)) as early, Etcd(config_of(cluster)) as unsigned:
            await early.put("a", b"before")  # Sign-in is off: a user's name changes nothing.
            cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
            assert (await early.get("a")).value == b"before"
            assert isinstance(await early.swap("b", ABSENT, b"1"), Swapped)
            lease = await early.grant(30)
            assert (await early.keep_alive(lease.id)).ttl == 30
            assert (await early.health())[0].error is None
            async with early.watch("b", start_revision=1) as events:
                assert (await anext(events)).current.value == b"1"
            with pytest.raises(Refused):
                await unsigned.swap("b", ABSENT, b"2")
            async with unsigned.watch("b", start_revision=1) as events:
                (end,) = [each async for each in events]
                assert "user name is empty" in end.why
        assert await refusal(config_of(cluster)) == "sign-in needed"
        assert await refusal(config_of(cluster, signed=("twinlog", "guessed"))) == "bad password"
        assert await refusal(config_of(cluster, signed=("nobody", "secret"))) == "bad password"
        assert await refusal(config_of(cluster, signed=USER, prefix="/another/")) == "no permission"
        gone = config_of(cluster, username="twinlog", password_file=tmp_path / "gone")
        assert await refusal(gone) == "password file"


async def test_the_rights_that_the_page_grants(tmp_path, version):
    """The very lines of docs/reference/etcd.md: with them all operations below the prefix are allowed, and none elsewhere."""
    lines = re.findall(r"^\$ etcdctl (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 5
    with EtcdCluster(tmp_path, version=version) as cluster:
        cluster.ctl("user", "add", "root:root")
        cluster.ctl("user", "grant-role", "root", "root")
        for line in lines:
            asks = ["--interactive=false"] if "user add" in line else []
            cluster.ctl(*line.split(), *asks, standard_input="secret\n")
        assert [each for each in await diagnose(config_of(cluster, signed=USER)) if each.level != "note"] == []
        assert await refusal(config_of(cluster, signed=USER, prefix="/twinlog-2/")) == "no permission"


async def test_client_certificates(tmp_path, version):
    """Demanded, with sign-in: one without a CommonName is taken, and nothing else."""
    tls = Tls.make(tmp_path / "tls", client_auth=True)
    issue = tls.authority.issue
    named = dict(zip(NOTHING, issue("named", usages=("client",)), strict=True))
    nameless = dict(zip(NOTHING, issue("nameless", subject="", usages=("client",)), strict=True))
    other = Authority(tmp_path / "tls", "other")
    stranger = dict(zip(NOTHING, other.issue("stranger", subject="", usages=("client",)), strict=True))
    with EtcdCluster(tmp_path, version=version, tls=tls) as cluster:
        async with Etcd(config_of(cluster, **named)) as etcd:
            await etcd.put("a", b"without sign-in a CommonName does no harm")
        cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
        for user in (USER, None):
            assert await refusal(config_of(cluster, signed=user, **named)) == "certificate with a CommonName"
        async with Etcd(config_of(cluster, signed=USER, **nameless)) as etcd:
            assert await etcd.get("a")
            assert isinstance(await etcd.swap("b", ABSENT, b"1"), Swapped)
        for shown in ({}, stranger):
            async with Etcd(config_of(cluster, signed=USER, **shown)) as etcd:
                with pytest.raises(EtcdError) as raised:
                    await etcd.swap("b", ABSENT, b"2")
                # TLS 1.3 tells it after the request has left; a reset connection may take the word with it.
                assert raised.value.cause in ("client certificate refused", "connection lost")
        assert await refusal(config_of(cluster, signed=USER, ca_file=other.certificate)) == "unknown authority"


async def test_user_and_password_over_tls(tmp_path, version):
    tls = Tls.make(tmp_path / "tls", usages=("server",))
    with EtcdCluster(tmp_path, version=version, tls=tls) as cluster:
        cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
        async with Etcd(config_of(cluster, signed=USER)) as etcd:
            assert isinstance(await etcd.swap("a", ABSENT, b"1"), Swapped)


async def test_a_server_certificate_without_client_usage(tmp_path, version):
    """Where client certificates are demanded, the gateway cannot reach etcd: it shows the server's certificate itself."""
    tls = Tls.make(tmp_path / "tls", client_auth=True, usages=("server",))
    mine = dict(zip(NOTHING, tls.authority.issue("mine", subject="", usages=("client",)), strict=True))
    with EtcdCluster(tmp_path, version=version, tls=tls) as cluster:
        async with Etcd(config_of(cluster, **mine)) as etcd:
            with pytest.raises((Unavailable, Refused)) as raised:
                await etcd.get("a")
            assert raised.value.cause == "gateway cut from its server"
            assert "clientAuth" in raised.value.fix
            with pytest.raises(EtcdError):
                await etcd.swap("a", ABSENT, b"1")


async def test_the_other_kind_of_connection(tmp_path, version):
    """http to a port for https, and the other way round: nothing has happened, or nobody knows."""
    with EtcdCluster(tmp_path, version=version, tls=Tls.make(tmp_path / "tls")) as cluster:
        plain = config_of(cluster, ca_file=None, endpoints=(cluster.endpoints[0].replace("https", "http"),))
        async with Etcd(plain) as etcd:
            with pytest.raises(EtcdError):
                await etcd.swap("a", ABSENT, b"1")
    with EtcdCluster(tmp_path / "plain", version=version) as cluster:
        secret = config_of(cluster, endpoints=(cluster.endpoints[0].replace("http", "https"),))
        async with Etcd(secret) as etcd:
            with pytest.raises(Unavailable) as raised:
                await etcd.swap("a", ABSENT, b"1")
            assert raised.value.cause == "TLS failed"


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
async def test_files_that_are_no_certificates(tmp_path, key):
    authority = Authority(tmp_path)
    certificate, private = authority.issue("mine")
    files = {"ca_file": authority.certificate, "cert_file": certificate, "key_file": private}

    async def opened():
        async with Etcd(EtcdConfig(endpoints=("https://127.0.0.1:1",), **files)):
            pass

    await opened()
    files[key] = tmp_path / "gone"
    with pytest.raises(Refused, match=r"etcd(Ca|Cert)File"):
        await opened()
    files[key].write_text("rubbish")
    with pytest.raises(Refused, match=r"etcd(Ca|Cert)File"):
        await opened()

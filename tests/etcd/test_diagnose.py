"""`diagnose` names what stands between us and etcd."""

import json
from pathlib import Path

from tests.cluster.remoting.certificates import Authority
from tests.etcd.clients import config_of
from tests.support.process_group.etcd import EtcdCluster, Tls
from tests.support.process_group.ports import HOST, free_port
from twinlog.cluster.etcd.diagnose import diagnose

USER = ("twinlog", "secret")


async def causes(config, *, notes=False):
    """Level and cause of each finding; each has words for what and, but for outages of etcd's own, what next."""
    found = await diagnose(config)
    assert all(each.what and each.subject for each in found)
    return [(each.level, each.cause) for each in found if notes or each.level != "note"]


def revision(cluster):
    return json.loads(cluster.ctl("get", "a", "-w", "json"))["header"]["revision"]


async def test_nothing_is_wrong(tmp_path, version):
    with EtcdCluster(tmp_path, 3, version) as cluster:
        assert await causes(config_of(cluster), notes=True) == []
        before = revision(cluster)
        assert await causes(config_of(cluster, endpoints=cluster.endpoints[:1]), notes=True) == [
            ("note", "one endpoint")
        ]
        assert revision(cluster) == before  # It has written nothing.
        first, second = cluster.followers()
        first.kill()
        assert await causes(config_of(cluster)) == [("warning", "no connection")]
        second.kill()
        found = await causes(config_of(cluster, request_timeout_ms=500))
        assert found.count(("critical", "no connection")) == 2
        assert {cause for _, cause in found} & {"no answer", "no leader", "failing"}


async def test_sign_in_and_rights(tmp_path, version):
    with EtcdCluster(tmp_path, version=version) as cluster:
        config = config_of(cluster, signed=USER)
        assert await causes(config) == [("warning", "sign-in off")]
        cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
        assert await causes(config) == []
        assert await causes(config_of(cluster)) == [("critical", "sign-in needed")]
        assert await causes(config_of(cluster, signed=USER, prefix="/other/")) == [("critical", "no permission")]
        assert await causes(config_of(cluster, signed=("twinlog", "guessed"))) == [("critical", "bad password")]
        cluster.ctl("role", "revoke-permission", "of-twinlog", "--prefix=true", "/twinlog/", user="root:root")
        cluster.ctl("role", "grant-permission", "of-twinlog", "--prefix=true", "read", "/twinlog/", user="root:root")
        assert await causes(config_of(cluster, signed=USER)) == [("critical", "no permission")]  # To write.


async def test_certificates(tmp_path, version):
    tls = Tls.make(tmp_path / "tls", client_auth=True)
    named, key = tls.authority.issue("named", usages=("client",))
    other = Authority(tmp_path / "tls", "other")
    with EtcdCluster(tmp_path, version=version, tls=tls) as cluster:
        cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
        assert await causes(config_of(cluster, signed=USER)) == [("critical", "client certificate refused")]
        config = config_of(cluster, signed=USER, cert_file=named, key_file=key)
        assert await causes(config) == [("critical", "certificate with a CommonName")]
        assert await causes(config_of(cluster, ca_file=other.certificate)) == [("critical", "unknown authority")]
        assert await causes(config_of(cluster, ca_file=Path("gone"))) == [("critical", "bad file")]
        plain = config_of(cluster, ca_file=None, endpoints=(cluster.endpoints[0].replace("https", "http"),))
        assert await causes(plain) == [("critical", "TLS demanded")]
    tls = Tls.make(tmp_path / "more", client_auth=True, usages=("server",))
    mine, key = tls.authority.issue("mine", subject="", usages=("client",))
    with EtcdCluster(tmp_path / "more", version=version, tls=tls) as cluster:
        config = config_of(cluster, cert_file=mine, key_file=key)
        assert await causes(config) == [("critical", "gateway cut from its server")]


async def test_endpoints(cluster, tmp_path):
    """Of another cluster, of another protocol, and of nobody."""
    secret = config_of(cluster, endpoints=(cluster.endpoints[0].replace("http", "https"),))
    assert await causes(secret) == [("critical", "no TLS there")]
    nobody = config_of(cluster, endpoints=(f"http://{HOST}:{free_port()}",))
    assert await causes(nobody) == [("critical", "no connection")]
    with EtcdCluster(tmp_path, version=cluster.version, flags=["--quota-backend-bytes=60000"]) as another:
        both = config_of(cluster, endpoints=(*cluster.endpoints, *another.endpoints))
        assert await causes(both) == [("critical", "several clusters")]
        for _ in range(30):
            try:
                another.ctl("put", "a", "x" * 4000)
            except AssertionError:
                break
        assert ("critical", "no space") in await causes(config_of(another))

"""What is refused of the configuration before anything is asked."""

from pathlib import Path

import pytest

from twinlog.cluster.etcd.config import EtcdConfig


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:2379",
        "http://",
        "http://127.0.0.1",
        "http://127.0.0.1:port",
        "http://127.0.0.1:99999",
        "ftp://127.0.0.1:2379",
        "http://127.0.0.1:2379/v3",
        "http://root:secret@127.0.0.1:2379",
        "http://127.0.0.1:2379,http://127.0.0.2:2379",
        "http://[::1:2379",
        "",
    ],
)
def test_endpoints_that_are_none(endpoint):
    with pytest.raises(ValueError, match="etcdEndpoints"):
        EtcdConfig(endpoints=(endpoint,))


def test_endpoints():
    urls = ("http://127.0.0.1:2379", "http://[::1]:2379/", "http://etcd-1.example.org:80")
    assert EtcdConfig(endpoints=urls).endpoints == urls
    with pytest.raises(ValueError, match="mixes"):
        EtcdConfig(endpoints=(*urls, "https://127.0.0.1:2379"))


@pytest.mark.parametrize("prefix", ["", "/", "twinlog/", "/twinlog", "/a\n/"])
def test_prefixes_that_are_none(prefix):
    with pytest.raises(ValueError, match="etcdPrefix"):
        EtcdConfig(prefix=prefix)


def test_what_belongs_together():
    file = Path("file")
    with pytest.raises(ValueError, match="etcdPasswordFile"):
        EtcdConfig(username="twinlog")
    with pytest.raises(ValueError, match="belong together"):
        EtcdConfig(cert_file=file)
    with pytest.raises(ValueError, match="https"):
        EtcdConfig(endpoints=("http://127.0.0.1:1",), ca_file=file)

"""Options of the connection: what they mean, and what is refused."""

import pickle

import pytest

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.connection import Connection, read_connection

HERE = {"nameServer": "127.0.0.1:9876"}


def test_all_options():
    found = read_connection(
        {
            "NAMESERVER": "one:1; two",
            "accessKey": "who",
            "secretKey": "secret",
            "securityToken": "token",
            "tls": "TRUE",
            "tlsCa": "/ca.pem",
            "tlsCert": "/cert.pem",
            "tlsKey": "/key.pem",
            "timeoutMs": "500",
        }
    )
    assert found.name_servers == ("one:1", "two:9876")
    assert found.credentials is not None
    assert (found.credentials.access_key, found.credentials.security_token) == ("who", "token")
    assert (str(found.tls_ca), str(found.tls_cert), str(found.tls_key)) == ("/ca.pem", "/cert.pem", "/key.pem")
    assert found.timeout_ms == 500
    assert pickle.loads(pickle.dumps(found)) == found
    assert "secret" not in repr(found)


def test_defaults():
    assert read_connection(HERE) == Connection(name_servers=("127.0.0.1:9876",))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "nameServer is missing"),
        ({"nameServer": " ; "}, "nameServer is missing"),
        ({"nameServer": "host:port"}, "nameServer"),
        (HERE | {"accessKey": "who"}, "secretKey"),
        (HERE | {"secretKey": "x"}, "accessKey"),
        (HERE | {"securityToken": "x"}, "accessKey"),
        (HERE | {"tls": "yes"}, "tls"),
        (HERE | {"tlsCa": "/ca.pem"}, "tls=true"),
        (HERE | {"tls": "true", "tlsCert": "/c.pem"}, "tlsKey"),
        (HERE | {"timeoutMs": "0"}, "timeoutMs"),
        (HERE | {"timeoutMs": "a"}, "timeoutMs"),
    ],
)
def test_what_is_refused_names_the_option(options, word):
    with pytest.raises(ReadRefusedError, match=word):
        read_connection(options)


def test_files_that_are_not_there_are_named():
    where = read_connection(HERE | {"tls": "true", "tlsCa": "/nowhere/ca.pem"})
    with pytest.raises(ReadRefusedError, match=r"/nowhere/ca\.pem"):
        where.tls_context()


async def test_without_a_block_error_nothing_is_wrapped():
    with pytest.raises(KeyError):
        async with read_connection(HERE).open():
            raise KeyError("as it is")

"""Configuration of the client: where etcd is, which keys are ours, and who we are there."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen, validators

from twinlog.store.config import option

DEFAULT_PREFIX = "/twinlog/"


def _are_endpoints(_instance: object, _attribute: Any, value: tuple[str, ...]) -> None:
    for each in value:
        why = _not_an_endpoint(each)
        if why:
            raise ValueError(f"etcdEndpoints: {each!r} {why}; write http://HOST:PORT or https://HOST:PORT")
    if len({urlsplit(each).scheme for each in value}) > 1:
        raise ValueError(
            f"etcdEndpoints: {', '.join(value)} mixes http and https; all members of etcd take one of them"
        )


def _not_an_endpoint(text: str) -> str:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        return f"is no URL ({error})"
    if url.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not url.hostname or port is None:
        return "lacks a host or a port"
    if url.path.strip("/") or url.query or url.fragment or url.username:
        return "has more than a host and a port"
    return ""


def _is_prefix(_instance: object, _attribute: Any, value: str) -> None:
    if not value.startswith("/") or not value.endswith("/") or len(value) < 2 or not value.isprintable():
        raise ValueError(
            f"etcdPrefix: {value!r} has to begin and end with /, with a name between them, such as /twinlog/"
        )


@frozen(kw_only=True)
class EtcdConfig:
    """Options of the client. Without endpoints there is no etcd."""

    endpoints: tuple[str, ...] = option(
        (),
        key="etcdEndpoints",
        doc="URLs of etcd's members for clients, http://HOST:PORT or https://HOST:PORT, with ; between",
        validator=_are_endpoints,
    )
    prefix: str = option(DEFAULT_PREFIX, key="etcdPrefix", doc="the start of all keys", validator=_is_prefix)
    username: str = option("", key="etcdUsername", doc="the user to sign in as; empty: without sign-in")
    password_file: Path | None = option(
        None, key="etcdPasswordFile", doc="a file with that user's password; it is read at each sign-in"
    )
    ca_file: Path | None = option(
        None, key="etcdCaFile", doc="certificates that etcd's ones are checked with; none: the system's"
    )
    cert_file: Path | None = option(
        None, key="etcdCertFile", doc="the certificate shown to etcd; with sign-in it may not have a CommonName"
    )
    key_file: Path | None = option(None, key="etcdKeyFile", doc="its private key, without a password")
    dial_timeout_ms: int = option(
        1_000,
        key="etcdDialTimeoutMs",
        doc="the time for a connection, and again for its TLS handshake",
        validator=validators.ge(1),
    )
    request_timeout_ms: int = option(
        5_000,
        key="etcdRequestTimeoutMs",
        doc="the time for one operation, on all endpoints together",
        validator=validators.ge(1),
    )

    def __attrs_post_init__(self) -> None:
        if self.username and self.password_file is None:
            raise ValueError("etcdUsername needs etcdPasswordFile: etcd's gateway signs users in by password only")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("etcdCertFile and etcdKeyFile belong together: set both, or none")
        if self.endpoints and not self.is_tls and (self.ca_file or self.cert_file):
            raise ValueError(f"etcdCaFile and etcdCertFile are for https, and etcdEndpoints has {self.endpoints[0]}")

    @property
    def is_tls(self) -> bool:
        """True when connections use TLS."""
        return bool(self.endpoints) and self.endpoints[0].startswith("https:")

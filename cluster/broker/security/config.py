"""Configuration of access control. Names are RocketMQ's: BrokerConfig 4.9.8, AuthConfig 5.3.3."""

from pathlib import Path
from typing import Any

import orjson
from attrs import field, frozen

from twinlog.cluster.remoting.signing import Credentials
from twinlog.store.config import option


def _credentials(_instance: object, _attribute: object, value: str | None) -> None:
    if value:
        read_credentials(value)


@frozen(kw_only=True)
class AclConfig:
    """Options of access control. The files are read at the start and each 5 s."""

    enable: bool = option(False, key="aclEnable", doc="check accounts and addresses of requests, by plain_acl.yml")
    home: Path | None = option(
        None, key="rocketmqHome", doc="conf/plain_acl.yml and conf/acl/*.yml lie below it; none: $ROCKETMQ_HOME"
    )
    file: str = option(
        "conf/plain_acl.yml",
        key="rocketmq.acl.plain.file",
        doc="the file that administrators change by request, below rocketmqHome",
    )
    credentials: str | None = field(
        default=None,
        validator=_credentials,
        repr=False,
        metadata={
            "key": "innerClientAuthenticationCredentials",
            "doc": 'credentials of this broker\'s requests: {"accessKey":"...","secretKey":"..."}, an admin of all members',
        },
    )

    @property
    def own(self) -> Credentials | None:
        """Credentials for the broker's own requests."""
        return read_credentials(self.credentials) if self.credentials else None


def read_credentials(text: str) -> Credentials:
    """Read credentials. Raises ValueError without the secret in its text."""
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    key, secret, token = (
        map(value.get, ("accessKey", "secretKey", "securityToken")) if isinstance(value, dict) else (None,) * 3
    )
    if not (isinstance(key, str) and key and isinstance(secret, str) and secret):
        raise ValueError('{"accessKey":"...","secretKey":"..."}')
    return Credentials(key, secret, token or None)

"""Signatures of requests, as in RocketMQ's access control.

    ext["AccessKey"] = key
    content          = the values of ext in the order of their names, without separators, as UTF-8; then the body
    ext["Signature"] = base64(HMAC-SHA1(secret, content))

Neither the request's code nor the time is signed, so a captured request can be replayed: use TLS to prevent capture.
Sources: AclClientRPCHook, AclUtils, AclSigner (RocketMQ 4.9.8).
"""

import hmac
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from attrs import field, frozen

from twinlog.cluster.remoting.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"

Mac = Callable[[bytes, bytes | memoryview], bytes]


@frozen
class Credentials:
    """An account's key and secret. The secret never leaves the process, and is left out of the repr."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def make_mac(secret_key: str) -> Mac:
    """Return a function from fields and body to the signature's bytes; the key schedule is computed once."""
    keyed = hmac.new(secret_key.encode("utf-8", "replace"), digestmod="sha1")

    def mac(fields: bytes, body: bytes | memoryview) -> bytes:
        one = keyed.copy()
        one.update(fields)
        if len(body):
            one.update(body)
        return b2a_base64(one.digest(), newline=False)

    return mac


def signed_fields(ext: Mapping[str, str], *, without: str = "") -> bytes:
    """The header's part of the signed content; `without` is a field that is left out besides the signature itself."""
    values = _values_of.get((without, *ext)) or _in_order(ext, without)
    return "".join(values(ext)).encode("utf-8", "replace")


def remember_order(ext: Mapping[str, str], *, without: str = "") -> None:
    """Cache the order of these fields. Call it for valid signatures only, so that untrusted peers fill no memory."""
    key = (without, *ext)
    if key in _values_of or len(ext) > _FIELDS_MAX or sum(map(len, ext)) > _NAMES_LENGTH_MAX:
        return
    if len(_values_of) >= _ORDERS_MAX:
        _values_of.clear()
    _values_of[key] = _in_order(ext, without)


# Clients send the same few sets of fields: sorting their names takes as long as the rest of a signature.
_ORDERS_MAX, _FIELDS_MAX, _NAMES_LENGTH_MAX = 1_000, 64, 2_048
_values_of: dict[tuple[str, ...], Callable[[Mapping[str, str]], Iterable[str]]] = {}


def _in_order(ext: Mapping[str, str], without: str) -> Callable[[Mapping[str, str]], Iterable[str]]:
    names = sorted(name for name in ext if name not in (SIGNATURE, without))
    return itemgetter(*names) if names else lambda _ext: ()


def make_signer(credentials: Credentials) -> Callable[[RemotingCommand], None]:
    """Return a function for RemotingClient.sign: it sets key and signature in `command.ext`, and replaces others there."""
    mac = make_mac(credentials.secret_key)

    def sign(command: RemotingCommand) -> None:
        ext = command.ext = {} if command.ext is None else command.ext
        ext[ACCESS_KEY] = credentials.access_key
        ext.pop(SECURITY_TOKEN, None)
        if credentials.security_token is not None:
            ext[SECURITY_TOKEN] = credentials.security_token
        fields = signed_fields(ext)
        remember_order(ext)
        ext[SIGNATURE] = mac(fields, command.body).decode()

    return sign

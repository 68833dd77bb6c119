"""Rules of access control: those of one file, and those of all files together. Pure: plain objects in, frozen ones out.

Sources: PlainPermissionManager.java, PlainAccessConfig.java (RocketMQ 4.9.8).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from twinlog.cluster.broker.security.address import AddressPattern, parse_pattern
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.permission import parse_permission, split_permission
from twinlog.cluster.config.redaction import HIDDEN
from twinlog.cluster.remoting.names import DataVersion, retry_topic
from twinlog.cluster.remoting.signing import Mac, make_mac

KEY_LENGTH_MIN = 7  # Of access keys and secrets: "longer than 6".

GLOBAL_WHITE, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"
_YES, _NO = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
Document = dict[str, Any]


@frozen(eq=False)
class Account:
    """Account for checks. `permissions`: by topic, and by retry topic for groups; None: none are listed."""

    access_key: str
    mac: Mac = field(repr=False)
    white: AddressPattern
    admin: bool
    default_topic: int
    default_group: int
    permissions: Mapping[str, int] | None


@frozen(eq=False)
class AclFile:
    """Rules of one file."""

    path: Path
    white: tuple[AddressPattern, ...]
    accounts: tuple[Account, ...]
    version: DataVersion
    document: Document = field(repr=False)  # As read, with the secrets in clear.


@frozen(eq=False)
class Rules:
    """Rules of all files. `home_of`: the file of each account; the first one that has it counts."""

    files: tuple[AclFile, ...] = ()
    accounts: Mapping[str, Account] = field(factory=dict)
    home_of: Mapping[str, Path] = field(factory=dict)
    white: tuple[AddressPattern, ...] = ()

    @classmethod
    def of(cls, files: Iterable[AclFile]) -> "Rules":
        files = tuple(files)
        accounts: dict[str, Account] = {}
        home_of: dict[str, Path] = {}
        for file in files:
            for account in file.accounts:
                if accounts.setdefault(account.access_key, account) is account:
                    home_of[account.access_key] = file.path
        return cls(files, accounts, home_of, tuple(pattern for file in files for pattern in file.white))

    def is_white(self, host: str) -> bool:
        """True when requests from this IP need no signature."""
        return any(pattern.matches(host) for pattern in self.white)


def read_document(path: Path, value: object, loaded_ms: int) -> AclFile:
    """Read the YAML document of a file, None for an empty one. Raises AclError."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise AclError(f"its document is a {type(value).__name__}, not a table")
    accounts = tuple(read_account(plain_account(entry)) for entry in _list(value, ACCOUNTS))
    if twice := [key for key, count in Counter(each.access_key for each in accounts).items() if count > 1]:
        raise AclError(f"accessKey={twice[0]} occurs twice")
    white = tuple(parse_pattern(_text(each)) for each in _list(value, GLOBAL_WHITE))
    versions = _list(value, VERSION)
    try:
        version = DataVersion.read(versions[0]) if versions else DataVersion(loaded_ms)
    except (TypeError, ValueError, AttributeError):
        version = DataVersion(loaded_ms)
    return AclFile(path, white, accounts, version, value)


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    items = value.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise AclError(f"{key} is not a list")
    return items


def plain_account(entry: object) -> dict[str, Any]:
    """Read a PlainAccessConfig: its eight fields, strings even if YAML reads another type. Raises AclError."""
    if not isinstance(entry, dict):
        raise AclError("an account is not a table")
    return {
        "accessKey": _text(entry.get("accessKey")),
        "secretKey": _text(entry.get("secretKey")),
        "whiteRemoteAddress": _text(entry.get("whiteRemoteAddress")),
        "admin": is_true(entry.get("admin")),
        "defaultTopicPerm": _text(entry.get("defaultTopicPerm")),
        "defaultGroupPerm": _text(entry.get("defaultGroupPerm")),
        "topicPerms": _texts(entry, "topicPerms"),
        "groupPerms": _texts(entry, "groupPerms"),
    }


def is_true(value: object) -> bool:
    """Read one of YAML's spellings of true and false. Raises AclError."""
    text = (_text(value) or "false").lower()
    if text not in _YES | _NO:
        raise AclError("admin is neither true nor false")
    return text in _YES


def _texts(entry: Mapping[str, Any], key: str) -> list[str] | None:
    return None if entry.get(key) is None else [_text(each) or "" for each in _list(entry, key)]


def _text(value: object) -> str | None:
    """Read a string; requests may have numbers and bools, files have strings only."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (bool, int, float)):
        raise AclError(f"a {type(value).__name__} is found where a string is expected")
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_keys(plain: Mapping[str, Any]) -> None:
    """Check access key and secret. Raises AclError."""
    key, secret = plain["accessKey"], plain["secretKey"]
    if key is None or secret is None or min(len(key), len(secret)) < KEY_LENGTH_MIN:
        shown = "null" if secret is None else HIDDEN
        raise AclError(f"The accessKey={key} and secretKey={shown} cannot be null and length should longer than 6")


def read_account(plain: Mapping[str, Any]) -> Account:
    """Read an account. Raises AclError."""
    check_keys(plain)
    listed = {retry_topic(name): perm for name, perm in _permissions("group", plain["groupPerms"])}
    listed |= dict(_permissions("topic", plain["topicPerms"]))
    return Account(
        plain["accessKey"],
        make_mac(plain["secretKey"]),
        parse_pattern(plain["whiteRemoteAddress"]),
        plain["admin"],
        parse_permission(plain["defaultTopicPerm"]),
        parse_permission(plain["defaultGroupPerm"]),
        listed or None,
    )


def _permissions(kind: str, texts: Iterable[str] | None) -> Iterable[tuple[str, int]]:
    for text in texts or ():
        pair = split_permission(text)
        if pair is None:
            raise AclError(f"Parse resource permission failed for {kind}:{text}")
        yield pair[0], parse_permission(pair[1])

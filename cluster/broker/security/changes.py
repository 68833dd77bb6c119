"""What mqadmin changes in the files: accounts (50, 51) and global addresses (53). A document goes in, the changed one comes out.

Each change counts up the file's dataVersion. Source: PlainPermissionManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinlog.cluster.broker.security.accounts import ACCOUNTS, GLOBAL_WHITE, VERSION, Document, check_keys, read_account
from twinlog.cluster.broker.security.address import parse_pattern
from twinlog.cluster.broker.security.files import AclFiles
from twinlog.cluster.broker.security.permission import check_permissions
from twinlog.cluster.remoting.names import DataVersion

_SET_WHEN_GIVEN = ("whiteRemoteAddress", "topicPerms", "groupPerms")  # An empty one, too.
_SET_WHEN_FILLED = ("secretKey", "defaultTopicPerm", "defaultGroupPerm")


def update_account(files: AclFiles, plain: Mapping[str, Any]) -> None:
    """Add an account, or change what is given of one. Raises AclError, OSError."""
    check_keys(plain)
    check_permissions(plain["topicPerms"])
    check_permissions(plain["groupPerms"])
    read_account(plain)  # Or it could be written, but not read.
    path = files.rules.home_of.get(plain["accessKey"], files.default)
    document = files.document(path)
    accounts = list(document.get(ACCOUNTS) or ())
    old = next((each for each in accounts if str(each.get("accessKey")) == plain["accessKey"]), None)
    accounts = [each for each in accounts if each is not old]
    accounts.append(_merged(old or {}, plain))
    document[ACCOUNTS] = accounts
    _write(files, path, document)


def _merged(old: Document, plain: Mapping[str, Any]) -> Document:
    given = {name: plain[name] for name in _SET_WHEN_GIVEN if plain[name] is not None}
    given |= {name: plain[name] for name in _SET_WHEN_FILLED if plain[name]}
    return {**old, "accessKey": plain["accessKey"], "admin": plain["admin"], **given}


def delete_account(files: AclFiles, access_key: str) -> bool:
    """Whether there was one. Raises AclError, OSError."""
    path = files.rules.home_of.get(access_key)
    if not access_key or path is None:
        return False
    document = files.document(path)
    accounts = list(document.get(ACCOUNTS) or ())
    document[ACCOUNTS] = [each for each in accounts if str(each.get("accessKey")) != access_key]
    if len(document[ACCOUNTS]) == len(accounts):
        return False
    _write(files, path, document)
    return True


def update_global_white(files: AclFiles, patterns: Sequence[str], path_text: str | None) -> bool:
    """False for a path that is none of the files: nothing else can be written. Raises AclError, OSError."""
    path = Path(path_text) if path_text else files.default
    if path != files.default and path not in files.paths():
        return False
    for pattern in patterns:
        parse_pattern(pattern)
    document = files.document(path)
    document[GLOBAL_WHITE] = list(patterns)
    _write(files, path, document)
    return True


def _write(files: AclFiles, path: Path, document: Document) -> None:
    versions = document.get(VERSION)
    last = versions[0] if isinstance(versions, list) and versions else {}
    document[VERSION] = [DataVersion.read(last).next(files.now_ms()).plain()]
    files.write(path, document)

"""Files of access control rules: search, read, write. All functions block, so they run in a thread once the broker serves.

<home>/conf/plain_acl.yml, and each *.yml and *.yaml below <home>/conf/acl except tools.yml. If a file becomes invalid while the
broker runs, its last rules stay in force. Written as RocketMQ does, but at once and durably, and with the same mode.
Sources: PlainPermissionManager.java, AclUtils.java, AclFileWatchService.java (RocketMQ 4.9.8).

The functions at the end carry out changes by mqadmin: accounts (50, 51) and global addresses (53). Each change increments the
file's dataVersion.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import structlog
from attrs import define, field

from twinlog.cluster.broker.security.accounts import (
    ACCOUNTS,
    GLOBAL_WHITE,
    VERSION,
    AclFile,
    Document,
    Rules,
    check_keys,
    is_true,
    read_account,
    read_document,
)
from twinlog.cluster.broker.security.address import parse_pattern
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.permission import check_permissions
from twinlog.cluster.remoting.names import DataVersion
from twinlog.store.util.sync import write_durably

log = structlog.get_logger(__name__)

FILE_SIZE_MAX = 4 * 1024 * 1024
_NEW_FILE_MODE = 0o600
_SUFFIXES = (".yml", ".yaml")


@define(eq=False)
class AclFiles:
    """All files of rules. `default`: the file for new accounts and global addresses. `rules`: those of the last `load`."""

    home: Path
    default: Path
    now_ms: Callable[[], int]
    rules: Rules = field(factory=Rules, init=False)
    _good: dict[Path, AclFile] = field(factory=dict, init=False)
    _hashes: dict[Path, bytes] = field(factory=dict, init=False)

    def paths(self) -> list[Path]:
        """Return the files that exist now."""
        directory = self.home / "conf" / "acl"
        found = [path for path in sorted(directory.rglob("*")) if path.suffix in _SUFFIXES and path.name != "tools.yml"]
        found = [path for path in found if path.is_file()]
        return found if self.default in found or not self.default.exists() else [*found, self.default]

    def load_first(self) -> None:
        """Load at the start, when there are no earlier rules. Raises AclError with the file's name, OSError."""
        for path in self.paths():
            data = _read(path)
            self._good[path], self._hashes[path] = self._parse(path, data), _hash(data)
        self.rules = Rules.of(self._good.values())

    def load(self) -> bool:
        """Read changed files again; False if none has changed. An invalid file is logged and ignored."""
        paths = self.paths()
        changed = [path for path in paths if self._reload(path)]
        gone = [path for path in self._hashes if path not in paths]
        for path in gone:
            del self._hashes[path]
            self._good.pop(path, None)
            log.warning("a file of access rules was removed, and its accounts with it", file=str(path))
        if changed or gone:
            self.rules = Rules.of(self._good[path] for path in paths if path in self._good)
        return bool(changed or gone)

    def _reload(self, path: Path) -> bool:
        """Read a file again; True when its rules have changed."""
        try:
            data = _read(path)
            if self._hashes.get(path) == (digest := _hash(data)):
                return False
            self._hashes[path] = digest  # Also of an invalid file, so that it is logged once.
            if not data and path in self._good:
                raise AclError("it is empty")  # Usually it is just being written.
            self._good[path] = self._parse(path, data)
        except (AclError, OSError) as error:
            self._log_invalid(path, str(error))
            return False
        except Exception as error:
            self._log_invalid(path, type(error).__name__)
            return False
        log.info("access rules were read", file=str(path), accounts=len(self._good[path].accounts))
        return True

    def _log_invalid(self, path: Path, why: str) -> None:
        kept = "its last rules stay in force" if path in self._good else "it is ignored"
        log.error("a file of access rules is invalid", file=str(path), why=why, instead=kept)

    def _parse(self, path: Path, data: bytes) -> AclFile:
        return read_document(path, parse_yaml(path, data), self.now_ms())

    def document(self, path: Path) -> Document:
        """Return a file's document to change and write, empty for a new file. Raises AclError, OSError."""
        value = parse_yaml(path, _read(path)) if path.exists() else None
        document = read_document(path, value, self.now_ms()).document
        for account in document.get(ACCOUNTS) or ():
            if account.get("admin") is not None:
                account["admin"] = is_true(account["admin"])  # Written as RocketMQ reads it, without quotes.
        return document

    def write(self, path: Path, document: Document) -> None:
        """Replace the file, and take its rules. Raises AclError for invalid rules, OSError."""
        import yaml  # 15 ms of a start, for those who have such files.

        text = yaml.safe_dump(document, default_flow_style=False, allow_unicode=True, sort_keys=False)
        file = read_document(path, document, self.now_ms())
        write_durably(path.resolve(), text.encode(), new_mode=_NEW_FILE_MODE)  # A symlink is kept.
        self._good[path], self._hashes[path] = file, _hash(text.encode())
        self.rules = Rules.of(self._good[each] for each in self.paths() if each in self._good)


def parse_yaml(path: Path, data: bytes) -> Any:
    """Parse strings, lists and tables. Raises AclError with the position, but without a line of the file."""
    from twinlog.cluster.config.plain_yaml import PlainYamlError, load_plain

    try:
        return load_plain(data)
    except PlainYamlError as error:
        raise AclError(f"{path} {error}") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(FILE_SIZE_MAX + 1)
    if len(data) > FILE_SIZE_MAX:
        raise AclError(f"{path} is longer than {FILE_SIZE_MAX} bytes")
    return data


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


_SET_WHEN_GIVEN = ("whiteRemoteAddress", "topicPerms", "groupPerms")  # Also an empty one.
_SET_WHEN_FILLED = ("secretKey", "defaultTopicPerm", "defaultGroupPerm")


def update_account(files: AclFiles, plain: Mapping[str, Any]) -> None:
    """Add an account, or change the given fields of one. Raises AclError, OSError."""
    check_keys(plain)
    check_permissions(plain["topicPerms"])
    check_permissions(plain["groupPerms"])
    read_account(plain)  # An account that cannot be read must not be written.
    path = files.rules.home_of.get(plain["accessKey"], files.default)
    document = files.document(path)
    accounts = document.get(ACCOUNTS) or ()
    old: Document = next((each for each in accounts if str(each.get("accessKey")) == plain["accessKey"]), {})
    document[ACCOUNTS] = [*(each for each in accounts if each is not old), _merged(old, plain)]
    _write(files, path, document)


def _merged(old: Document, plain: Mapping[str, Any]) -> Document:
    given = {name: plain[name] for name in _SET_WHEN_GIVEN if plain[name] is not None}
    given |= {name: plain[name] for name in _SET_WHEN_FILLED if plain[name]}
    return {**old, "accessKey": plain["accessKey"], "admin": plain["admin"], **given}


def delete_account(files: AclFiles, access_key: str) -> bool:
    """Delete an account; False when there was none. Raises AclError, OSError."""
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
    """Set global white addresses; False for a path that is not one of the files. Raises AclError, OSError."""
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
    document[VERSION] = [DataVersion.read(last).next(files.now_ms()).to_json()]
    files.write(path, document)

"""The manifest of a backup: manifest.json, written last, so that a backup without it is unfinished.

{"checksum": xxh3-128 of the content as compact JSON, "content": {"version": 1, ...}}
"""

from pathlib import Path
from typing import Any

import attrs
import orjson
import xxhash
from attrs import frozen

from twinlog.store.errors import StoreError
from twinlog.store.offline.copy.copying import write_durably
from twinlog.store.offline.finding import doc

NAME = "manifest.json"
VERSION = 1


class BackupError(StoreError):
    """A backup cannot be made, or differs from its manifest."""


class BackupRefusedError(BackupError):
    """The directory holds other files, which must not be changed."""


@frozen(kw_only=True)
class BackedUpFile:
    """One file of a backup."""

    path: str = doc("relative to the backup")
    size: int = doc("bytes of the file, as in the store")
    data_size: int = doc("bytes that were copied; the rest of the file is zero")
    mtime_ns: int = doc("when the file was last changed in the store, ns since 1970")
    xxh3_128: str = doc("digest of the copied bytes")


@frozen(kw_only=True)
class BackedUpDamage:
    """Bytes of the log that hold no sound record; they were as bad in the store."""

    start_offset: int
    end_offset: int
    reason: str


@frozen(kw_only=True)
class BackupSource:
    """The store that was backed up."""

    root: str
    host: str
    writer: str = doc("the last broker that wrote to the store, as far as its files show")
    was_running: bool | None = doc("whether a broker had it open; null: not known")


@frozen(kw_only=True)
class Manifest:
    """A backup: bytes min_offset to end_offset of a commit log, configuration files, and queues that cannot be rebuilt."""

    version: int
    twinlog: str = doc("version of twinlog that made it")
    created_ms: int
    source: BackupSource
    commit_log_file_size: int
    consume_queue_file_size: int
    index_slots: int
    index_items: int
    message_delay_level: str
    min_offset: int
    end_offset: int
    records: int
    first_stored_ms: int | None
    last_stored_ms: int | None
    damage: tuple[BackedUpDamage, ...]
    left_out: tuple[str, ...] = doc("entries of the store's root that a backup does not hold")
    files: tuple[BackedUpFile, ...]

    @property
    def backup_id(self) -> str:
        """An identifier of the backup: the checksum of its content."""
        return _checksum(_content(self))


def save(manifest: Manifest, directory: Path) -> None:
    """Write the manifest; afterwards the backup is a whole one, durably. Raises OSError."""
    content = _content(manifest)
    data = orjson.dumps({"checksum": _checksum(content), "content": content}, option=orjson.OPT_INDENT_2)
    write_durably(directory / NAME, data)


def load(directory: Path) -> Manifest:
    """Read and check the manifest. Raises BackupError when there is none or it is damaged."""
    path = directory / NAME
    try:
        document = orjson.loads(path.read_bytes())
        content = document["content"]
        version = content["version"]
        is_sound = document["checksum"] == _checksum(content)
    except FileNotFoundError:
        raise BackupError(f"{directory} holds no {NAME}: it is no backup, or one that was not finished") from None
    except (ValueError, TypeError, KeyError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error
    if version != VERSION:
        raise BackupError(f"{path} is of version {version}; this twinlog reads version {VERSION}")
    if not is_sound:
        raise BackupError(f"{path} is damaged: its checksum does not fit")
    try:
        return _manifest(content)
    except (TypeError, KeyError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error


def _content(manifest: Manifest) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(orjson.dumps(attrs.asdict(manifest)))
    return content


def _checksum(content: object) -> str:
    return xxhash.xxh3_128_hexdigest(orjson.dumps(content))


def _manifest(content: dict[str, Any]) -> Manifest:
    parts = {
        "source": BackupSource(**content["source"]),
        "damage": tuple(BackedUpDamage(**each) for each in content["damage"]),
        "left_out": tuple(content["left_out"]),
        "files": tuple(BackedUpFile(**each) for each in content["files"]),
    }
    return Manifest(**(content | parts))

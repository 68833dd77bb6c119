"""Inspects a store directory of RocketMQ 4.9, 5.3 or twinlog, running or stopped, on any storage. Nothing is changed.

An inspection lists names and reads a few small parts, so it suits object storage as well; see places.py.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TypeVar

import orjson
from attrs import frozen

from twinlog.cluster.pipeline.sources.log_end import LogFile, QueueFiles, find_end, guessed_size
from twinlog.cluster.pipeline.sources.places import (
    StoreUri,
    UnreadableError,
    list_directories,
    list_files,
    list_tree,
    named,
    read_all,
)
from twinlog.store.epoch_file import FIRST, EpochEntry, decode_epochs
from twinlog.store.epoch_file import NAME as EPOCHS
from twinlog.store.errors import SideFileError
from twinlog.store.integrity import digest
from twinlog.store.offline.directory import lock_holder
from twinlog.store.role_file import NAME as ROLE
from twinlog.store.role_file import decode_role
from twinlog.store.truncation import intent as truncate_intent
from twinlog.store.truncation.divergent import NOTE

T = TypeVar("T")
SIDE = "twinlog"
_NAME_LENGTH = 20
_CHECKPOINT = Struct(">qqqqq")


class NotAStoreError(Exception):
    """The place is no store directory. The message says what to name instead."""

    def __init__(self, uri: StoreUri, why: str) -> None:
        super().__init__(uri, why)
        self.uri, self.why = uri, why

    def __str__(self) -> str:
        return f"{self.uri.shown}: {self.why}"


@frozen(kw_only=True)
class StoreFiles:
    """Result of an inspection; it can be sent to other processes. Offsets and sizes in bytes of the log.

    The log has whole records from `first` to `end`. No role change removes bytes below `confirmed`; None: unknown.
    `claimed`: the furthest end that the store's own files mention (queues, digests, a clean stop); None: none do.
    `is_running`: a broker on this machine has the store open now. `has_abort`: it was not closed, or not yet.
    `problems`: files that could not be read or decoded.
    """

    uri: StoreUri
    log: tuple[LogFile, ...]
    file_size: int
    first: int
    end: int
    confirmed: int | None = None
    claimed: int | None = None
    is_running: bool = False
    has_abort: bool = False
    epochs: tuple[EpochEntry, ...] = (FIRST,)
    digests: StoreUri | None = None  # twinlog/digest, see store/integrity/digest.py.
    config: tuple[StoreUri, ...] = ()
    problems: tuple[str, ...] = ()

    def queues(self) -> list[QueueFiles]:
        """Files of all consume queues, listed now. Raises UnreadableError."""
        return list_queues(self.uri)

    def index(self) -> list[LogFile]:
        """Index files, listed now, oldest first; `start` is the time in their names. Raises UnreadableError."""
        infos = [info for info in list_files(self.uri.child("index")) if info.name.isdecimal()]
        return [LogFile(self.uri.child(f"index/{info.name}"), int(info.name), info.size) for info in infos]


def inspect_store(uri: StoreUri) -> StoreFiles:
    """Inspect a store directory. Raises NotAStoreError, and UnreadableError when nothing can be read."""
    root = uri.root
    log = list_log(uri)
    names = set(list_directories(root))
    if not log and not names & {"commitlog", "consumequeue"}:
        raise NotAStoreError(root, _no_store(root, names))
    with named(lock := root.child("lock")):
        is_running = root.is_local and lock_holder(lock.path) is not None
    has_abort = any(info.name == "abort" for info in list_files(root))
    problems: list[str] = []
    note = _decoded(root.child(NOTE), orjson.loads, problems)
    epochs = _decoded(root.child(f"{SIDE}/{EPOCHS}"), decode_epochs, problems)
    role = _decoded(root.child(f"{SIDE}/{ROLE}"), decode_role, problems)
    checkpoint = _decoded(root.child("checkpoint"), _CHECKPOINT.unpack_from, problems)
    place = root.child(f"{SIDE}/digest")
    digests = _decoded(place, _digests, problems)
    first = max(log[0].start if log else 0, int(note.get("first", 0)) if isinstance(note, dict) else 0)
    confirmed_ends = (role.told_confirmed if role is not None else 0, checkpoint[4] if checkpoint is not None else 0)
    confirmed = next((at for at in confirmed_ends if at > 0), None)
    size, after_crash = guessed_size([log]), has_abort and not is_running
    end, queued = find_end(log, size, first, lambda: list_queues(root), may_grow=is_running, after_crash=after_crash)
    intent = _decoded(root.child(f"{SIDE}/{truncate_intent.NAME}"), truncate_intent.decode_intent, problems)
    if intent is not None:  # The next start completes the cut.
        end = min(end, intent.offset) if intent.kind is truncate_intent.CutKind.CUT else first
    claimed = (digests.digests.end if digests is not None else None, queued, confirmed)
    return StoreFiles(
        uri=uri,
        log=log,
        file_size=size,
        first=first,
        end=max(end, first),
        confirmed=confirmed,
        claimed=max((at for at in claimed if at is not None), default=None),
        is_running=is_running,
        has_abort=has_abort,
        epochs=epochs or (FIRST,),
        digests=place if digests is not None else None,
        problems=tuple(problems),
    )


def _no_store(root: StoreUri, names: set[str]) -> str:
    if root.is_local and not root.path.is_dir():
        return "there is no such directory. Name the store's root, which holds commitlog/ and consumequeue/"
    if not names and not list_files(root):
        return "it is empty, or there is no such directory. Name the store's root, which holds commitlog/"
    return (
        "it holds no store: there is neither commitlog/ nor consumequeue/ in it. Name the store's root; where the log "
        f"lies elsewhere, name its directories, too: '{root.shown};DIRECTORY'"
    )


def list_log(uri: StoreUri) -> tuple[LogFile, ...]:
    """Files of the log in all its directories, in order. Raises UnreadableError."""
    files: dict[int, LogFile] = {}
    for place in uri.log_places or (uri.root.child("commitlog"),):
        for info in list_files(place):
            if _is_file_name(info.name):
                files.setdefault(int(info.name), LogFile(place.child(info.name), int(info.name), info.size))
    return tuple(files[start] for start in sorted(files))


def _is_file_name(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isdecimal()


def _is_text(name: str) -> bool:
    """True if a name is valid UTF-8, as every topic's is."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def list_queues(uri: StoreUri, directory: str = "consumequeue") -> list[QueueFiles]:
    """Files of all consume queues, or of their ext files, by topic and queue id. Raises UnreadableError."""
    place = uri.root.child(directory)
    found: dict[tuple[str, int], list[LogFile]] = {}
    newest: dict[tuple[str, int], int] = {}
    for info in list_tree(place):
        parts = info.name.split("/")
        if len(parts) == 3 and parts[1].isdecimal() and _is_file_name(parts[2]) and _is_text(parts[0]):
            key = parts[0], int(parts[1])
            found.setdefault(key, []).append(LogFile(place.child(info.name), int(parts[2]), info.size))
            newest[key] = max(newest.get(key, 0), info.mtime_ns)
    size = guessed_size(found.values())
    return [QueueFiles(*key, tuple(found[key]), size, newest[key]) for key in sorted(found)]


def _digests(raw: bytes) -> digest.Decoded:
    found = digest.decode(raw)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def _decoded(uri: StoreUri, decode: Callable[[bytes], T], problems: list[str]) -> T | None:
    """Content of a small file; None if it is missing, or cannot be decoded, which becomes a problem."""
    try:
        raw = read_all(uri)
        return None if raw is None else decode(raw)
    except (UnreadableError, ValueError, SideFileError, StructError) as error:
        problems.append(str(error) if isinstance(error, UnreadableError) else f"{uri.shown}: {error}")
        return None

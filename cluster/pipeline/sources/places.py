"""Access to files wherever a store lies: local paths by os.pread, everything else through pyarrow.fs.

    /data/store, file:///data/store    s3://BUCKET/store?region=...    gs://BUCKET/store    hdfs://HOST:PORT/store

The part behind a question mark holds options of pyarrow.fs.FileSystem.from_uri, such as endpoint_override. A log in directories
of its own is written behind the store's directory, with semicolons: /data/store;/disk1/commitlog;/disk2/commitlog
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from errno import ELOOP
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field, frozen

from twinlog.store.util.sync import write_durably

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem  # Imported where it is used: most stores are local.

T = TypeVar("T")


def _plain(text: str) -> str:
    return ";".join(_plain_place(part.strip()) for part in text.split(";") if part.strip())


def _plain_place(text: str) -> str:
    text = text.removeprefix("file://")
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    path, mark, options = parted(text)
    return path.rstrip("/") + mark + options


def parted(place: str) -> tuple[str, str, str]:
    """Part of a URI before its options, the question mark, and the options. Local paths have no options."""
    return place.partition("?") if "://" in place else (place, "", "")


@frozen(order=True)
class StoreUri:
    """A directory or a file. Local ones are made absolute, so that all processes of a machine agree on them."""

    text: str = field(converter=_plain)

    @property
    def root(self) -> "StoreUri":
        """The store's directory alone."""
        return StoreUri(self.text.partition(";")[0])

    @property
    def log_places(self) -> "tuple[StoreUri, ...]":
        """Directories of the log, if named."""
        return tuple(StoreUri(part) for part in self.text.split(";")[1:])

    @property
    def is_local(self) -> bool:
        """True if it is a local path."""
        return "://" not in self.text

    @property
    def path(self) -> Path:
        """The local path."""
        assert self.is_local
        return Path(self.root.text)

    @property
    def name(self) -> str:
        """The last part."""
        return self.root.shown.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """Text without options, which may hold keys."""
        return ";".join(parted(part)[0] for part in self.text.split(";"))

    def child(self, name: str) -> "StoreUri":
        """An entry of this directory; `name` may be a relative path."""
        path, mark, options = parted(self.root.text)
        return StoreUri(f"{path}/{name}{mark}{options}")

    def __str__(self) -> str:
        return self.text


class UnreadableError(OSError):
    """Bytes, or a list of files, could not be read. The catcher names `what`, and continues with the rest."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} cannot be read: {why}")
        self.what, self.why = what, why

    def __reduce__(self) -> tuple[Any, ...]:
        return UnreadableError, (self.what, self.why)


@frozen(order=True)
class ListedFile:
    """A file in a listing, ordered by name. `mtime_ns` is 0 where unknown; `name` is relative to the listed directory."""

    name: str
    size: int
    mtime_ns: int


def list_files(uri: StoreUri) -> list[ListedFile]:
    """Files of a directory, by name; none if it does not exist. Raises UnreadableError."""
    if not uri.is_local:
        return _remote_files(uri, recursive=False)
    with named(uri), _scan(uri.path) as entries:
        here = [_local_info(entry, entry.name) for entry in entries if _answer(entry.is_file)]
    return sorted(info for info in here if info is not None)


def list_directories(uri: StoreUri) -> list[str]:
    """Names of the directories in it, sorted; none if it does not exist. Raises UnreadableError."""
    if uri.is_local:
        with named(uri), _scan(uri.path) as entries:
            return sorted(entry.name for entry in entries if _answer(entry.is_dir))
    from pyarrow.fs import FileType

    return sorted(name for name, info in _remote_listing(uri) if info.type == FileType.Directory)


def list_tree(uri: StoreUri) -> list[ListedFile]:
    """All files below a directory, by relative path. Raises UnreadableError."""
    return sorted(_local_tree(uri, "")) if uri.is_local else _remote_files(uri, recursive=True)


@define(eq=False)
class _LocalFile:
    uri: StoreUri
    _fd: int

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer where the file ends. Raises UnreadableError."""
        with named(self.uri):
            return os.pread(self._fd, size, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill a buffer as far as the file goes; returns the number of bytes. Raises UnreadableError."""
        done = 0
        with named(self.uri):
            while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], position + done)):
                done += count
        return done

    def close(self) -> None:
        os.close(self._fd)


@define(eq=False)
class _RemoteFile:
    uri: StoreUri
    _file: Any

    def read(self, position: int, size: int) -> bytes:
        with named(self.uri):
            room = self._file.size() - position
            data: bytes = self._file.read_at(min(size, room), position) if room > 0 else b""
            return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


Bytes = _LocalFile | _RemoteFile  # An open file.


def open_file(uri: StoreUri) -> Bytes:
    """Open a file for reading parts of it. Raises UnreadableError."""
    with named(uri):
        if uri.is_local:
            return _LocalFile(uri, os.open(uri.path, os.O_RDONLY | os.O_CLOEXEC))
        system, path = _remote(uri)
        return _RemoteFile(uri, system.open_input_file(path))


def read_all(uri: StoreUri, size_max: int = 64 << 20) -> bytes | None:
    """Content of a small file; None if it is missing. Raises UnreadableError, also for one larger than `size_max`."""
    with named(uri):
        if uri.is_local:
            is_there = uri.path.is_file()
        else:
            system, path = _remote(uri)
            is_there = system.get_file_info(path).is_file
    if not is_there:
        return None
    with closing(open_file(uri)) as file:
        data = file.read(0, size_max + 1)
    if len(data) > size_max:
        raise UnreadableError(uri.shown, f"it is larger than {size_max} bytes")
    return data


def write_all(uri: StoreUri, data: bytes) -> None:
    """Write a small file; readers see the old content or the new one. Raises UnreadableError."""
    with named(uri):
        if uri.is_local:
            uri.path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(uri.path, data)
        else:
            system, path = _remote(uri)
            with system.open_output_stream(path) as stream:
                stream.write(data)


@contextmanager
def named(uri: StoreUri) -> Iterator[None]:
    """Raise errors of the system, and of pyarrow, as UnreadableError with the name of the file."""
    try:
        yield
    except UnreadableError:
        raise
    except OSError as error:
        raise UnreadableError(uri.root.shown, error.strerror or str(error)) from error
    except (ValueError, ImportError, NotImplementedError) as error:  # pyarrow: wrong address, missing library.
        options = parted(uri.root.text)[2]
        why = str(error).replace(f"?{options}", "") if options else str(error)
        raise UnreadableError(uri.root.shown, why) from error


@contextmanager
def _scan(path: Path) -> "Iterator[Iterator[os.DirEntry[str]]]":
    if not path.is_dir():
        yield iter(())
        return
    with os.scandir(path) as entries:
        yield entries


def _local_info(entry: "os.DirEntry[str]", name: str) -> ListedFile | None:
    status = _answer(entry.stat)
    return ListedFile(name, status.st_size, status.st_mtime_ns) if status is not None else None


def _answer(ask: Callable[[], T]) -> T | None:
    """The answer about an entry; None for a link to itself, and for one that a running broker removed."""
    try:
        return ask()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != ELOOP:
            raise
        return None


def _local_tree(uri: StoreUri, below: str, above: frozenset[str] = frozenset()) -> Iterator[ListedFile]:
    """Files below a directory. Links are followed, except to a directory above."""
    here = os.path.realpath(uri.path / below)
    if here in above:
        return
    with named(uri), _scan(uri.path / below) as entries:
        found = [(entry, _answer(entry.is_dir)) for entry in entries]
    for entry, is_directory in found:
        name = f"{below}/{entry.name}" if below else entry.name
        if is_directory:
            yield from _local_tree(uri, name, above | {here})
            continue
        with named(uri):
            info = _local_info(entry, name)
        if info is not None:
            yield info


def _remote_files(uri: StoreUri, *, recursive: bool) -> list[ListedFile]:
    found = ((name, info) for name, info in _remote_listing(uri, recursive=recursive) if info.is_file)
    return sorted(ListedFile(name, info.size, info.mtime_ns or 0) for name, info in found)


def _remote_listing(uri: StoreUri, *, recursive: bool = False) -> list[tuple[str, Any]]:
    """Entries by their path relative to the directory."""
    from pyarrow.fs import FileSelector

    with named(uri):
        system, path = _remote(uri)
        found = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
    return [(info.path.removeprefix(f"{path}/"), info) for info in found]


def _remote(uri: StoreUri) -> "tuple[FileSystem, str]":
    """The file system, and its own path of the place. Names are not decoded: topics may contain per cent signs."""
    place, _, options = parted(uri.root.text)
    scheme, _, rest = place.partition("://")
    authority, _, path = rest.partition("/")
    system, base = _file_system(f"{scheme}://{authority}/", options)
    return system, f"{base.rstrip('/')}/{path}".rstrip("/")


@lru_cache(maxsize=64)
def _file_system(base: str, options: str) -> "tuple[FileSystem, str]":
    """The file system of a bucket or a cluster, and its own path of that."""
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(base + (f"?{options}" if options else ""))
    return system, str(path)

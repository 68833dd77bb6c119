"""Support bundle: facts about a cluster in one .tar.gz, without messages.

    collect(...) -> Part for each file -> write(path, parts)

Secrets are removed when a part is made, so that they cannot get into the file.
"""

import io
import os
import platform
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson
from attrs import asdict, frozen

from twinlog.cluster.client.api import ClientApi, addresses_of
from twinlog.cluster.config.redaction import redact, redact_text, shown
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.names import as_component
from twinlog.store.errors import StoreError

LOG_TAIL_SIZE = 256 * 1024  # Of each log, bytes.
LOGS_MAX = 64


@frozen
class Part:
    """One file of a bundle, without secrets, and a short description."""

    name: str
    what: str
    data: bytes


@frozen
class BundleReport:
    """Path of a bundle (null: only planned) and its parts: name, bytes, description."""

    path: str | None
    parts: tuple[tuple[str, int, str], ...]


def report_of(path: Path | None, parts: Iterable[Part]) -> BundleReport:
    """Report about these parts."""
    return BundleReport(str(path) if path is not None else None, tuple((p.name, len(p.data), p.what) for p in parts))


async def collect(
    api: ClientApi, operations: "dict[str, tuple[str, Callable[[], Awaitable[Any]]]]", logs: Path | None
) -> tuple[Part, ...]:
    """Collect all parts; a failed request becomes a part with the reason.

    `operations`: description and request by file name. `logs`: a directory of *.log files on this machine.
    """
    parts = [Part("versions.json", "versions of twinlog, Python and this machine's system", _json(versions()))]
    for name, (what, ask) in operations.items():
        parts.append(Part(name, what, await _asked(ask)))
    parts += [part async for part in _of_members(api)]
    if logs is not None:
        parts += _tails(logs)
    return tuple(parts)


async def _asked(ask: Callable[[], Awaitable[Any]]) -> bytes:
    try:
        return _json(await ask())
    except (RemotingError, StoreError, ExceptionGroup, ValueError) as error:
        return _json({"error": f"{type(error).__name__}: {error}"})
    except Exception as error:  # A helper with less is better off than without anything.
        return _json({"error": f"{type(error).__name__}: {error}", "unexpected": True})


async def _of_members(api: ClientApi) -> AsyncIterator[Part]:
    try:
        groups = await api.cluster()
    except RemotingError:
        return
    for group, broker_id, address in addresses_of(groups):
        directory = f"members/{as_component(group.broker_name)}-{broker_id}"
        try:
            text = await api.broker_config(address)
            yield Part(f"{directory}/broker.conf", "its options, secrets hidden", _config(text))
            runtime = await api.runtime_info(address)
            yield Part(f"{directory}/runtime.json", "its counters (request 28)", _json(runtime))
            status = await api.member_status(address)
            if status is not None:
                yield Part(f"{directory}/status.json", "its role, offsets and slaves", _json(status.to_json()))
        except RemotingError as error:
            yield Part(f"{directory}/error.txt", "why it told nothing", redact_text(f"{error}\n").encode())


def _config(text: str) -> bytes:
    lines = []
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        lines.append(f"{key}{equals}{shown(key.strip(), value)}")
    return ("\n".join(lines) + "\n").encode()


def _tails(directory: Path) -> list[Part]:
    parts = []
    for path in sorted(directory.glob("*.log"))[:LOGS_MAX]:
        try:
            with path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(max(0, size - LOG_TAIL_SIZE))
                text = file.read(LOG_TAIL_SIZE).decode(errors="replace")
        except OSError as error:
            text = f"not readable: {error}\n"
        parts.append(Part(f"logs/{path.name}", "the end of its log", redact_text(text).encode()))
    return parts


def versions() -> dict[str, str]:
    """Versions of the software that runs here."""
    try:
        own = version("twinlog")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "twinlog": own,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processors": platform.machine(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _json(value: Any) -> bytes:
    plain = orjson.loads(orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS))
    return orjson.dumps(redact(plain), option=orjson.OPT_INDENT_2) + b"\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "__attrs_attrs__"):
        return asdict(value, recurse=False)
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


def write(path: Path, parts: Iterable[Part]) -> None:
    """Make the file; only its user can read it. Raises FileExistsError, OSError."""
    root = path.name.removesuffix(".tar.gz").removesuffix(".tgz")
    with open(path, "xb", opener=_private) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for part in parts:
            entry = tarfile.TarInfo(f"{root}/{part.name}")
            entry.size, entry.mode, entry.mtime = len(part.data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(part.data))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

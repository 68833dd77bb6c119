"""Destination of an export, and its note there: OUT/_export.json says which export it is. Checked before Spark starts.

A place that cannot be read from here, such as one with a scheme that only Spark knows, is neither checked nor marked.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import asdict, frozen

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import (
    StoreUri,
    UnreadableError,
    list_directories,
    list_files,
    read_all,
    write_all,
)

MARKER = "_export.json"
PARQUET, DELTA = FORMATS = ("parquet", "delta")
STORE, CLUSTER = "store", "cluster"
_VERSION = 1
_DELTA_LOG, _SPARK_LOG = "_delta_log", "_spark_metadata"


@frozen(kw_only=True)
class Marker:
    """Identity of an export; one of another kind does not write there. `bad` empty: the default place.

    `schema` is Spark's JSON of the bodies' columns, None: bytes.
    """

    format: str
    source: str  # STORE or CLUSTER.
    topics: tuple[str, ...]
    bad: str
    schema: Mapping[str, Any] | None = None


def read_marker(out: str) -> Marker | None:
    """The marker of an output; None without one. Raises UnreadableError, ReadRefusedError."""
    raw = read_all(StoreUri(out).child(MARKER))
    if raw is None:
        return None
    try:
        fields = orjson.loads(raw)
        if fields.pop("version") != _VERSION:
            raise ReadRefusedError(f"{out}/{MARKER} is of a later version of twinlog: export with that, or elsewhere")
        return Marker(**fields | {"topics": tuple(fields["topics"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadRefusedError(
            f"{out}/{MARKER} is no file of an export: {error!r}. Export into another place."
        ) from error


def write_marker(out: str, marker: Marker) -> None:
    """Write it, unless the place cannot be reached from here."""
    try:
        write_all(StoreUri(out).child(MARKER), orjson.dumps({"version": _VERSION, **asdict(marker)}) + b"\n")
    except UnreadableError:
        if is_local(out):
            raise


def check_destination(wanted: Marker, out: str, checkpoint: str, bad: str) -> Marker | None:
    """The marker of the export that is there and can be continued; None for a new one. `schema` is not compared.

    Raises ReadRefusedError for a destination of something else, and where output and checkpoint do not belong together.
    """
    _check_places(out, bad)
    try:
        found, names = read_marker(out), _names(out)
        has_progress = bool(list_files(StoreUri(checkpoint).child("offsets")))
        bad_names = _names(bad)
    except UnreadableError:
        if is_local(out) and is_local(checkpoint) and is_local(bad):
            raise
        return None
    if found is None:
        _check_new(out, names, checkpoint, has_progress)
    else:
        _check_same(wanted, found, out)
        if names and not has_progress:
            raise ReadRefusedError(
                f"{out} holds an export already, which is not in {checkpoint}: its messages would be there twice. Name the "
                "checkpoint of that export, or an empty directory."
            )
    if bad_names and (_DELTA_LOG in bad_names) != (wanted.format == DELTA):
        raise ReadRefusedError(
            f"{bad} is for bad rows, and holds no {wanted.format} table: name another place with --bad"
        )
    return found


def is_local(place: str) -> bool:
    """True for a path of this machine."""
    return StoreUri(place).is_local


def _names(place: str) -> set[str]:
    """Directories and files of a place, but those that an export leaves before it has written a row."""
    uri = StoreUri(place)
    found = {*list_directories(uri), *(file.name for file in list_files(uri))}
    return {name for name in found if not name.startswith((".", "_")) or name in (_DELTA_LOG, _SPARK_LOG)}


def _check_places(out: str, bad: str) -> None:
    ours, theirs = (f"{StoreUri(place).shown.rstrip('/')}/" for place in (out, bad))
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise ReadRefusedError(
            f"bad rows would go to {bad}, which is a part of {out}, or the other way round: name another place"
        )


def _check_new(out: str, names: set[str], checkpoint: str, has_progress: bool) -> None:
    if _SPARK_LOG in names:
        raise ReadRefusedError(
            f"{out} was written by twinlog 0.2, or by a stream of Spark's: readers pass over what is not in {_SPARK_LOG}. Export "
            "into an empty directory, with a new checkpoint; with --start the messages that are there can be left out."
        )
    if names:
        raise ReadRefusedError(f"{out} holds {min(names)}, which is of no export. Name an empty directory.")
    if has_progress:
        raise ReadRefusedError(
            f"{checkpoint} is the checkpoint of another output, and {out} is empty: it would lack what that checkpoint has "
            "passed. Name the output of that checkpoint, or a new checkpoint."
        )


def _check_same(wanted: Marker, found: Marker, out: str) -> None:
    differences = [
        f"{name} is {_shown(theirs)} there, and {_shown(ours)} here"
        for name, theirs, ours in (
            ("the format", found.format, wanted.format),
            ("the source", f"a {found.source}", f"a {wanted.source}"),
            ("the topic", found.topics, wanted.topics),
            ("the place of bad rows", found.bad or "the default", wanted.bad or "the default"),
        )
        if theirs != ours
    ]
    if differences:
        raise ReadRefusedError(f"{out} holds another export: {'; '.join(differences)}. Export into an empty directory.")


def _shown(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)

"""The members of an audit of directories, each looked at once: what is no store, or cannot be read, is named and left out."""

import os
import re
from collections.abc import Sequence

from attrs import frozen

from twinlog.cluster.pipeline.audit.assembly import names_of
from twinlog.cluster.pipeline.audit.compare import Side
from twinlog.cluster.pipeline.audit.copies import side_of
from twinlog.cluster.pipeline.audit.report import AuditedMember
from twinlog.cluster.pipeline.sources.files import (
    SIDE,
    NotAStoreError,
    StoreFiles,
    StoreUri,
    UnreadableError,
    list_files,
    look,
)


@frozen(kw_only=True)
class Store:
    """A member; `files` None: it could not be looked at, because of `problem`. `notes`: small files that could not be read."""

    name: str
    place: str
    is_master: bool = False
    files: StoreFiles | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()
    is_ours: bool = False  # twinlog has written there.

    @property
    def side(self) -> Side:
        """Its log, for comparing."""
        assert self.files is not None
        return side_of(self.name, self.files)

    def told(self, *, compared: int = 0, equal: int = 0, read: int = 0) -> AuditedMember:
        """For the report."""
        files = self.files
        if files is None:
            return AuditedMember(
                name=self.name, place=self.place, is_master=self.is_master, is_live=False, problem=self.problem
            )
        return AuditedMember(
            name=self.name,
            place=self.place,
            is_master=self.is_master,
            is_live=False,
            software="twinlog" if self.is_ours else "RocketMQ",
            is_running=files.is_running,
            first_offset=files.first,
            last_offset=files.end,
            confirmed_offset=files.confirmed,
            compared_bytes=compared,
            equal_bytes=equal,
            read_bytes=read,
        )


def look_at(places: Sequence[str | StoreUri]) -> list[Store]:
    """Look at each; the first one is the master."""
    texts = [place.text if isinstance(place, StoreUri) else place for place in places]
    names = names_of([StoreUri(text).text for text in texts])
    return [
        _look(name, text, is_master=number == 0) for number, (name, text) in enumerate(zip(names, texts, strict=True))
    ]


def same_places(places: Sequence[str]) -> tuple[str, str] | None:
    """The first two that are names of one store; None when each has its own."""
    known: dict[str, str] = {}
    for place in places:
        uri = StoreUri(place).root
        real = os.path.realpath(uri.path) if uri.is_local else uri.shown
        if real in known:
            return known[real], place
        known[real] = place
    return None


def _look(name: str, text: str, *, is_master: bool) -> Store:
    uri, place = StoreUri(text), without_secrets(text)
    try:
        files = look(uri)
        is_ours = bool(list_files(uri.child(SIDE)))
    except NotAStoreError as error:
        return Store(name=name, place=place, is_master=is_master, problem=without_secrets(error.why))
    except UnreadableError as error:
        return Store(name=name, place=place, is_master=is_master, problem=without_secrets(str(error)))
    notes = tuple(map(without_secrets, files.problems))
    return Store(name=name, place=place, is_master=is_master, files=files, notes=notes, is_ours=is_ours)


def without_secrets(text: str) -> str:
    """A place, or words with places in them, as a report may show it: what stands behind a ? or before an @ may be keys."""
    return re.sub(r"(\w+://)(?:[^/@\s]*@)?([^?;\s]*)(?:\?[^;\s']*?(?=: |[;\s']|$))?", r"\1\2", text)

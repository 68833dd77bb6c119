"""Where the files of a store lie.

    /data/store, file:///data/store    s3://BUCKET/store?region=...    gs://BUCKET/store    hdfs://HOST:PORT/store

What stands behind a question mark are options of pyarrow.fs.FileSystem.from_uri, such as endpoint_override. Where the log lies in
directories of its own, they follow the store's, each behind a semicolon: /data/store;/disk1/commitlog;/disk2/commitlog
"""

import os
from pathlib import Path

from attrs import field, frozen


def _plain(text: str) -> str:
    return ";".join(_plain_place(part.strip()) for part in text.split(";") if part.strip())


def _plain_place(text: str) -> str:
    text = text.removeprefix("file://")
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    path, mark, options = parted(text)
    return path.rstrip("/") + mark + options


def parted(place: str) -> tuple[str, str, str]:
    """What comes before the options of a URI, the question mark, and these. Paths of this machine have none."""
    return place.partition("?") if "://" in place else (place, "", "")


@frozen(order=True)
class StoreUri:
    """A directory or a file. A local one is made absolute, so that it means the same to every process of a machine."""

    text: str = field(converter=_plain)

    @property
    def root(self) -> "StoreUri":
        """The store's directory alone."""
        return StoreUri(self.text.partition(";")[0])

    @property
    def log_places(self) -> "tuple[StoreUri, ...]":
        """The directories of the log that were named."""
        return tuple(StoreUri(part) for part in self.text.split(";")[1:])

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
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
        """For people: without options, which may hold keys."""
        return ";".join(parted(part)[0] for part in self.text.split(";"))

    def child(self, name: str) -> "StoreUri":
        """What is called so in this directory; `name` may be a relative path."""
        path, mark, options = parted(self.root.text)
        return StoreUri(f"{path}/{name}{mark}{options}")

    def __str__(self) -> str:
        return self.text

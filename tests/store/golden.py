"""The captured store directories, unpacked for a test. What they hold: tests/golden/README.md."""

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import trio

from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
VERSIONS = ("4.9.7", "5.3.3")
CLEAN, RUNNING = ("master", "slave"), "master-running"
STOPPED = [(version, name) for version in VERSIONS for name in CLEAN]
ALL = [(version, name) for version in VERSIONS for name in (*CLEAN, RUNNING)]
FILE_SIZE = 131_072
CONSUME_QUEUE_FILE_SIZE = 2_000


def unpack(version: str, name: str, to: Path) -> Path:
    """Unpack one captured directory below `to`, and return it."""
    with tarfile.open(GOLDEN / f"rocketmq-{version}" / f"store-{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # Not in Debian 12's 3.11.2; later ones warn without it.
            archive.extraction_filter = staticmethod(tarfile.data_filter)
        archive.extractall(to)
    return to / name


def truth(version: str) -> dict[str, Any]:
    """What the client of a capture noted: `messages` with the broker's answers."""
    noted: dict[str, Any] = json.loads(lzma.decompress((GOLDEN / f"rocketmq-{version}" / "truth.json.xz").read_bytes()))
    return noted


def config(root: Path, **options: object) -> StoreConfig:
    """The settings that the captured directories were written with."""
    options = {
        "mapped_file_size_commit_log": FILE_SIZE,
        "mapped_file_size_consume_queue": CONSUME_QUEUE_FILE_SIZE,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        **options,
    }
    return StoreConfig(root=root, **options)


def unpack_digested(version: str, name: str, to: Path) -> Path:
    """One that ours has opened, digested and closed."""
    root = unpack(version, name, to)
    store = MessageStore(config(root, max_hash_slot_num=100, max_index_num=400))
    store.load()
    trio.run(store.close)
    return root


def log_files(root: Path) -> dict[int, bytes]:
    """Start offset to content, in order, of the files of one directory of a queue of files."""
    return {int(path.name): path.read_bytes() for path in sorted(root.iterdir())}


def queue_files(root: Path) -> dict[str, bytes]:
    """Path below consumequeue/ to content."""
    queues = root / "consumequeue"
    return {str(path.relative_to(queues)): path.read_bytes() for path in sorted(queues.rglob("*")) if path.is_file()}


def tree(root: Path) -> set[str]:
    """Every file and directory below `root`."""
    return {str(path.relative_to(root)) for path in root.rglob("*")}

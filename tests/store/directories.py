"""A store's directory: what is in it, and one after a clean stop."""

import shutil
from pathlib import Path

from tests.helpers import open_store, put
from tests.store import golden
from tests.store.records import put_message
from twinlog.store.offline.copy.rebuild import INDEX


def times_and_names(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}


FILE_SIZE = 16_384


def files(directory: Path) -> dict[str, bytes]:
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def stopped(root: Path) -> Path:
    """A twinlog store after a clean stop, with messages of one queue in deleted files, and a small index."""
    store = open_store(root, file_size=FILE_SIZE)
    store.put([put_message("Old", bytes(100)) for _ in range(3)])
    put(store, *(bytes([i]) * 500 for i in range(100)))
    store.dispatch_pending()
    store._release()
    (root / "commitlog" / f"{0:020d}").unlink()
    (root / "abort").unlink()
    shutil.copytree(golden.unpack("4.9.7", "master", root.parent) / INDEX, root / INDEX)
    return root

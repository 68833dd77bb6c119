"""Stores in object storage: the same tables as of the same directory on the disk, without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.pipeline.logs import merged, message, records, write_log
from tests.spark.s3_server import CREDENTIALS, S3Server
from tests.store import golden
from twinlog.cluster.pipeline.sources.files import NotAStoreError, StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import splits
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import StoreUri, UnreadableError, open_file
from twinlog.cluster.pipeline.sources.walk import Broken, BrokenKind
from twinlog.cluster.pipeline.tables.scan import block_batches, record_batches


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment, S3Server(tmp_path_factory.mktemp("s3")) as server:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        yield server


def tables(files: StoreFiles, size: int) -> tuple[list[dict], list[dict], list[Broken]]:
    found, blocks, told = [], [], []
    for part in splits(files.log, size, files.first, files.end):
        for batch in record_batches(files, part, body=True, on_broken=told.append):
            found += batch.to_pylist()
        for batch in block_batches(files, part):
            blocks += batch.to_pylist()
    return found, blocks, merged(told)


@pytest.mark.slow
@pytest.mark.parametrize("version", golden.VERSIONS)
def test_the_same_as_on_the_disk(s3: S3Server, tmp_path: Path, version: str):
    root = golden.unpack(version, "master", tmp_path)
    here, there = inspect_store(StoreUri(str(root))), inspect_store(StoreUri(s3.upload(root, f"same-{version}")))
    assert [(file.uri.name, file.start, file.size) for file in there.log] == [
        (file.uri.name, file.start, file.size) for file in here.log
    ]
    for name in ("first", "end", "file_size", "confirmed", "claimed", "has_abort", "problems"):
        assert getattr(there, name) == getattr(here, name)
    assert [queue.topic for queue in there.queues()] == [queue.topic for queue in here.queues()]
    assert tables(there, 100_000) == tables(here, 100_000)


def test_what_is_missing_is_told(s3: S3Server, tmp_path: Path):
    file_size = 16 << 10
    data, _ = records([message(number, b"x" * 900) for number in range(90)], 0, file_size)
    files = inspect_store(StoreUri(s3.upload(write_log(tmp_path, data, 0, file_size), "missing")))
    other = LogFile(files.log[1].uri.root.child("none"), files.log[1].start, files.log[1].size)
    files = StoreFiles(
        uri=files.uri,
        log=(files.log[0], other, *files.log[2:]),
        file_size=file_size,
        first=files.first,
        end=files.end,
    )
    found, blocks, (broken,) = tables(files, 1 << 20)
    assert (broken.start, broken.end, broken.kind) == (file_size, 2 * file_size, BrokenKind.UNREADABLE)
    assert "missing" in broken.reason
    assert found
    assert [block["digest"] is None for block in blocks] == [True, *[False] * (len(blocks) - 1)]


def test_what_is_no_store(s3: S3Server):
    with pytest.raises(NotAStoreError, match="empty"):
        inspect_store(StoreUri(s3.uri("nothing-here")))
    with pytest.raises(UnreadableError, match="none cannot be read"):
        open_file(StoreUri(s3.uri("none")))

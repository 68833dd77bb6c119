"""A thousand kinds of damage: the checker reports each one that something in the store vouches for."""

import pytest

from store.offline.directory import DirectoryOptions, StoreDirectory
from store.offline.verify import Verdict, verify
from tests.store import golden
from tests.store.offline.mutations import covered_files, mutations

CASES = [(version, name) for version in golden.VERSIONS for name in golden.CLEAN]
OPTIONS = DirectoryOptions(
    log_file_size=golden.FILE_SIZE, queue_file_size=golden.CONSUME_QUEUE_FILE_SIZE, index_slots=100
)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_damage_that_anything_vouches_for_is_reported(version, name, tmp_path):
    """250 of them to each captured store."""
    root = golden.unpack(version, name, tmp_path)
    covered = covered_files(root)
    missed, demanded = [], 0
    for mutation in mutations(root, seed=CASES.index((version, name)), count=250):
        mutation.apply()
        with StoreDirectory.open(root, OPTIONS) as directory:
            verdict = verify(directory).verdict
        mutation.undo()
        if mutation.touches(covered[mutation.path]):
            demanded += 1
            if verdict is Verdict.SOUND:
                missed.append(mutation)
    assert not missed, [(str(m.path.relative_to(root)), m.what) for m in missed]
    assert demanded > 150

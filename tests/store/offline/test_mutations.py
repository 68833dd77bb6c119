"""A thousand kinds of damage: the checker reports each one that other data in the store covers."""

from pathlib import Path

import pytest

from tests.store import golden
from tests.store.offline.mutations import covered_files, mutations
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.verify.verify import VerifyVerdict, verify

OPTIONS = DirectoryOptions(
    log_file_size=golden.FILE_SIZE, queue_file_size=golden.CONSUME_QUEUE_FILE_SIZE, index_slots=100
)


STORES = [  # For each change a master's store of one version, and a slave's of the other.
    pytest.param(number, id="-".join(each), marks=[pytest.mark.long] * (number in (1, 2)))
    for number, each in enumerate(golden.STOPPED)
]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", STORES)
def test_damage_that_anything_vouches_for_is_reported(number, tmp_path):
    """250 of them to each captured store."""
    root = golden.unpack(*golden.STOPPED[number], tmp_path)
    covered = covered_files(root)
    missed, demanded = [], 0
    for mutation in mutations(root, seed=number, count=250):
        mutation.apply()
        with StoreDirectory.open(root, OPTIONS) as directory:
            verdict = verify(directory).verdict
        mutation.undo()
        if mutation.touches(covered[mutation.path]):
            demanded += 1
            if verdict is VerifyVerdict.SOUND:
                missed.append(mutation)
    assert not missed, [(str(m.path.relative_to(root)), m.what) for m in missed]
    assert demanded > 150


@pytest.fixture(params=STORES)
def digested(request, tmp_path):
    """A captured store with its digest, and which one it is."""
    return golden.unpack_digested(*golden.STOPPED[request.param], tmp_path), request.param


@pytest.mark.slow
def test_with_a_digest_every_used_byte_of_the_log_is_covered(digested):
    """100 kinds of damage to the log of each."""
    root, number = digested
    assert sound(root)
    covered = covered_files(root, has_digest=True)
    missed, demanded = [], 0
    for mutation in mutations(root, seed=100 + number, count=100, kinds=("commitlog",)):
        if mutation.touches(covered[mutation.path]):
            demanded += 1
            mutation.apply()
            if sound(root):
                missed.append((mutation.path.name, mutation.what))
            mutation.undo()
    assert not missed
    assert demanded > 80


def sound(root: Path) -> bool:
    with StoreDirectory.open(root, OPTIONS) as directory:
        return verify(directory).verdict is VerifyVerdict.SOUND

"""What `log info` says of epochs and of a promise."""

import pytest

from cluster.cli.log_info import show_info
from store.config import BrokerRole
from store.epoch_file import FIRST, EpochEntry, EpochId, save_epochs
from store.offline.directory import StoreDirectory
from store.offline.info import look
from store.offline.role_info import EpochInfo
from store.role_file import RoleState, save_role
from tests.helpers import open_store, put


@pytest.fixture
def root(tmp_path):
    put(open_store(tmp_path), b"x")
    return tmp_path


def looked(root):
    with StoreDirectory.open(root) as directory:
        return look(directory)


def test_a_log_of_one_master_says_nothing(root, capsys):
    info = looked(root)
    assert (info.history, info.role) == (None, None)
    show_info(info, "pretty")
    assert "epoch" not in capsys.readouterr().out


def test_epochs_and_the_promise(root, capsys):
    entry = EpochEntry(
        epoch=4, winner="10.0.0.2:10911", start_offset=1234, at_ms=9, kind="forced", old="a:1", lost_bytes=None
    )
    save_epochs(root / "twinlog", (FIRST, entry))
    state = RoleState(
        role=BrokerRole.SLAVE, broker_id=1, promised=EpochId(5, "10.0.0.3:10911"), group=None, whole=False
    )
    save_role(root / "twinlog", state)
    info = looked(root)
    assert info.history.epochs[1] == EpochInfo(
        epoch=4,
        winner="10.0.0.2:10911",
        start_offset=1234,
        began_ms=9,
        kind="forced",
        reason="",
        old_master="a:1",
        lost_bytes=None,
    )
    assert (info.role.role, info.role.promised_epoch, info.role.is_whole) == ("SLAVE", 5, False)
    show_info(info, "pretty")
    said = capsys.readouterr().out
    assert "SLAVE, id 1; promised epoch 5 to 10.0.0.3:10911; may lack what it acknowledged\n" in said
    assert "4 from 1234 on: 10.0.0.2:10911, forced, " in said


def test_files_that_make_no_sense_are_told(root, capsys):
    for name in ("epochs", "role"):
        (root / "twinlog").mkdir(exist_ok=True)
        (root / "twinlog" / name).write_bytes(b"nonsense")
    info = looked(root)
    assert "does not begin with twinlog-epochs" in info.history.error
    assert "does not begin with twinlog-role" in info.role.error
    show_info(info, "pretty")
    assert capsys.readouterr().out.count("nobody may guess that") == 2

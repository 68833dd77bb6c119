"""A history that is none is refused where it is read: to write it down fails, and after that nobody is served."""

import pytest
from attrs import evolve

from twinlog.cluster.broker.peers.role_messages import history_body, read_history
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId

GOOD = PeerHistory(
    id=EpochId(2, "a"),
    entries=(FIRST, EpochEntry(epoch=2, winner="a", start_offset=50)),
    promised=EpochId(2, "a"),
    role=BrokerRole.SYNC_MASTER,
    group=None,
    min_offset=0,
    max_offset=90,
    boot_ms=1,
    address="a",
    ha_address="a",
)


def _told(history):
    return read_history(history_body(history, cluster="c", name="b", broker_id=0, more={}))


@pytest.mark.parametrize(
    "entries",
    [(GOOD.entries[1], FIRST), (FIRST, evolve(GOOD.entries[1], start_offset=-1)), (FIRST,)],
    ids=["falling", "before the log", "not its own"],
)
def test_what_is_no_history_is_refused(entries):
    assert _told(GOOD) == GOOD
    with pytest.raises(ValueError, match="epoch"):
        _told(evolve(GOOD, entries=entries))


def test_an_empty_one_is_refused():
    body = history_body(GOOD, cluster="c", name="b", broker_id=0, more={"epochs": []})
    with pytest.raises(ValueError, match="epoch"):
        read_history(body)

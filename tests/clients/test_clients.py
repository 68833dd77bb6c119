"""Clients that are not the 4.9 Java one, with default settings: the Go client, and the remoting client of RocketMQ 5.3.3.

Each runs all its scenarios (go/main.go, java/Scenarios.java) in one process; what it printed is judged here.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.role_changes import wait_grouped

pytestmark = pytest.mark.timeout(150)

TOPICS = ("plain", "order", "broadcast", "delay", "transaction")
SETTINGS = {**TEST_SETTINGS, "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
SYNC, ASYNC, BATCH = (
    [f"{kind}-{i}" for i in range(count)] for kind, count in (("sync", 100), ("async", 100), ("batch", 50))
)


def facts(lines: Sequence[str], name: str) -> list[list[str]]:
    """What was said under a name: the words of each line."""
    return [words[1:] for line in lines if (words := line.split(" ")) and words[0] == name]


def test_an_application_runs_as_it_is(scenarios, tmp_path):
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        twinlog.Broker(tmp_path / "master", namesrv.address, role="SYNC_MASTER", settings=SETTINGS) as master,
        twinlog.Broker(tmp_path / "slave", namesrv.address, role="SLAVE", settings=SETTINGS),
    ):
        wait_grouped(master, 2)
        for topic in TOPICS:
            create_topic(master.address, f"clients-{topic}")
        lines = scenarios(namesrv.address)

    assert lines[-1] == "end"
    assert facts(lines, "failed") == []
    assert Counter(map(tuple, facts(lines, "sent"))) == Counter(
        ("SEND_OK", body) for body in (*SYNC, *ASYNC, "batch", "large")
    )
    (everything,) = facts(lines, "all")
    assert Counter(everything) == Counter((*SYNC, *ASYNC, *BATCH, "oneway-0", "large"))
    (tagged,) = facts(lines, "tagged")
    assert Counter(tagged) == Counter((*SYNC[::2], *ASYNC))

    (ordered,) = facts(lines, "ordered")
    for shard in range(4):
        assert [body for body in ordered if body.startswith(f"shard{shard}")] == [
            f"shard{shard}-{i}" for i in range(25)
        ]
    for one_of_two in ("broadcast-one", "broadcast-other"):
        (cast,) = facts(lines, one_of_two)
        assert Counter(cast) == Counter(f"cast-{i}" for i in range(20))

    assert facts(lines, "delayed") == [["later"]]
    ((delay_ms,),) = facts(lines, "delay-ms")
    assert int(delay_ms) >= 5000, "delay level 2"
    (committed,) = facts(lines, "committed")
    assert Counter(committed) == Counter(f"half-{i}" for i in range(12) if i % 3 != 1)
    (checked,) = facts(lines, "checked")
    assert set(checked) == {f"half-{i}" for i in range(12) if i % 3 == 2}

"""`twinlog mqadmin` prints what the real mqadmin prints, asked the same of the same cluster."""

import os
import re
import subprocess

import pytest

from tests.mqadmin.clusters import Cluster
from tests.mqadmin.normalise import normalise
from tests.support.process_group.process import PROGRAM

# Each with what it prints in an order of its own: sets of Java have none.
ROWS = (
    ("topicList", "", True),
    ("topicList", "-c", True),
    ("topicRoute", "-t Single", False),
    ("topicRoute", "-t Single -l", False),
    ("topicStatus", "-t Orders", False),
    ("updateTopic", "-b {broker} -t Alias -r 2 -w 3 -p 4 -u true", False),
    ("updateTopic", "-b {broker} -t Alias -r 2 -w 3 -o true", False),
    ("updateTopic", "-c DefaultCluster -t Alias -o true -s true", False),
    ("deleteTopic", "-c DefaultCluster -t Alias", False),
    ("clusterList", "", False),
    ("clusterList", "-m", False),
    ("brokerStatus", "-b {broker}", False),
    ("brokerStatus", "-c DefaultCluster", True),
    ("consumerProgress", "", True),
    ("consumerProgress", "-g CG", False),
    ("consumerProgress", "-g CG -s true", False),
    ("queryMsgById", "-i {offset_id}", False),
    ("queryMsgByKey", "-t Single -k order-1", False),
    ("updateSubGroup", "-b {broker} -g AliasGroup", False),
    ("updateSubGroup", "-c DefaultCluster -g AliasGroup -s false -m true -d true -q 2 -r 3 -i 1 -w 0 -a false", False),
    ("resetOffsetByTime", "-g Offline -t Single -s 0", False),
    ("resetOffsetByTime", "-g Offline -t Single -s now -f false", False),
    ("resetOffsetByTime", "-g CG -t Single -s 2020-01-01#00:00:00:000", False),
)

TRIES = 3


@pytest.fixture(scope="module")
def ours(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[1]


def forget_resets(ours: Cluster) -> None:
    """Offline, for which nobody is connected, is where CG is."""
    ours.mqadmin("cloneGroupOffset", "-s CG -d Offline -t Single")


def alias(ours: Cluster, command: str, arguments: str) -> str:
    given = [PROGRAM, "mqadmin", command, "-n", ours.namesrv, *arguments.format(**ours.words()).split()]
    done = subprocess.run(
        given, capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def comparable(ours: Cluster, text: str, *, is_set: bool) -> list[str]:
    text = normalise(text.replace("MessageTrack [", "\nMessageTrack ["), ours.words())  # One after the other, there.
    text = re.sub(r"exceptionDesc=(?!null).*", "exceptionDesc=<why>", text)  # Java's words.
    lines = [line for line in text.splitlines() if line and not line.startswith("For more information")]
    lines = [
        line for line in lines if not line.startswith(("Message Body", "Properties:"))
    ]  # See cluster/mqadmin/messages.py.
    return sorted(lines) if is_set else lines


def both(ours: Cluster, command: str, arguments: str, *, is_set: bool) -> tuple[list[str], list[str]]:
    """What the real one prints, and what ours does."""
    if "Offline" in arguments:
        forget_resets(ours)
    theirs, _ = ours.mqadmin(command, arguments)
    if "Offline" in arguments:
        forget_resets(ours)
    printed = alias(ours, command, arguments)
    if command == "brokerStatus":  # Values go on while one asks.
        theirs, printed = (
            "\n".join(line.partition(":")[0] for line in text.splitlines()) for text in (theirs, printed)
        )
    return comparable(ours, theirs, is_set=is_set), comparable(ours, printed, is_set=is_set)


@pytest.mark.parametrize(("command", "arguments", "is_set"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_an_alias_prints_what_mqadmin_prints(ours: Cluster, command: str, arguments: str, is_set: bool) -> None:
    """Asked again where they differ: rates and clients change while one asks."""
    for _ in range(TRIES):
        theirs, printed = both(ours, command, arguments, is_set=is_set)
        if printed == theirs:
            break
    assert printed == theirs

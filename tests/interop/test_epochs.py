"""mqadmin of RocketMQ 5.3.3 reads our epochs: getBrokerEpoch."""

import re
from contextlib import ExitStack
from pathlib import Path

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import runtime_info
from tests.support.process_group import jars, twinlog
from tests.support.process_group.role_changes import change_role, wait_grouped
from tests.support.process_group.status import send
from tests.support.waiting import wait_for

TOPIC, MESSAGES = "aged", 10
EPOCH = re.compile(r"#Epoch: EpochEntry\{epoch=(\d+), startOffset=(\d+), endOffset=(\d+)\}")


def printed_epochs(tool: Tool) -> dict[str, tuple[str, list[tuple[int, int, int]]]]:
    """By address of a member: the id that mqadmin prints of it, and its epochs."""
    found = {}
    printed = tool.run("getBrokerEpoch", "-b", "broker-a")
    assert "#clusterName" in printed, printed
    for block in re.split(r"\n(?=#clusterName)", printed)[1:]:
        values = dict(line.split("\t", 1) for line in block.splitlines() if "\t" in line)
        assert (values["#clusterName"], values["#brokerName"]) == ("DefaultCluster", "broker-a")
        epochs = [(int(epoch), int(start), int(end)) for epoch, start, end in EPOCH.findall(block)]
        found[values["#brokerAddr"]] = (values["#brokerId"], epochs)
    return found


def log_end(member: twinlog.Broker) -> int:
    return int(runtime_info(member.address)["commitLogMaxOffset"])


def test_mqadmin_prints_our_epochs(root: Path) -> None:
    """One epoch from the beginning of the log; after a switchover two that meet, the same on both members."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        first = stack.enter_context(twinlog.Broker(root / "first", namesrv, role="SYNC_MASTER"))
        second = stack.enter_context(twinlog.Broker(root / "second", namesrv, role="SLAVE"))
        wait_grouped(first, 2)
        assert send(first.port, TOPIC, MESSAGES, size=100) == [0] * MESSAGES
        before = log_end(first)
        tool = Tool(stack.enter_context(JavaClient(root / "client", version=jars.VERSION_5)), namesrv)
        assert printed_epochs(tool)[first.address] == ("0", [(0, 0, before)])
        change_role("switchover", second)
        wait_grouped(second, 2)
        assert send(second.port, TOPIC, MESSAGES, size=100) == [0] * MESSAGES
        wait_for(lambda: log_end(first) == log_end(second), "the old master is level")
        wait_for(lambda: len(printed_epochs(tool)) == 2, "the name server knows both under their new ids", timeout_s=5)
        epochs = [(0, 0, before), (1, before, log_end(second))]
        assert printed_epochs(tool) == {second.address: ("0", epochs), first.address: ("1", epochs)}

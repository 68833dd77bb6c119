"""A selection of RocketMQ's own integration tests: what three minutes can show of each kind."""

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.peer_suite import masters
from tests.peer_suite.runner import Run, Suite

SELECTION = [  # The longest first: two JVMs share them.
    "client.producer.transaction.TransactionalMsgIT",
    "client.consumer.balance.NormalMsgStaticBalanceIT",
    "client.consumer.cluster.DynamicCrashConsumerIT",
    "client.consumer.tag.TagMessageWithMulConsumerIT",
    "client.consumer.filter.SqlFilterIT",
    "client.producer.order.OrderMsgWithTagIT",
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubTagIT",
    "client.consumer.broadcast.normal.BroadCastNormalMsgNotRecvIT",
    "client.producer.querymsg.QueryMsgByIdIT",
    "tls.TLS_IT",
    "client.producer.querymsg.QueryMsgByKeyIT",
    "client.producer.batch.BatchSendIT",
    "client.producer.order.OrderMsgIT",
    "smoke.NormalMessageSendAndRecvIT",
    "client.producer.exception.msg.MessageExceptionIT",
    "client.producer.exception.msg.MessageUserPropIT",
    "client.producer.async.AsyncSendExceptionIT",
    "client.producer.oneway.OneWaySendWithSelectorIT",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores and logs are."""
    return tmp_path_factory.mktemp("peer")


@pytest.fixture(scope="module")
def results(root: Path) -> dict[str, list[Run]]:
    """The runs of each class; a failed one was run again."""
    with masters.running(root) as namesrv:
        return trio.run(partial(Suite(namesrv, root).run, SELECTION))


@pytest.mark.timeout(175)  # The first one waits for all of them.
@pytest.mark.parametrize("name", SELECTION)
def test_class(results: dict[str, list[Run]], name: str) -> None:
    runs = results[name]
    assert runs[-1].passed, [run.plain() for run in runs]


def test_nothing_failed_on_the_servers(results: dict[str, list[Run]], root: Path) -> None:
    assert masters.complaints(root) == []

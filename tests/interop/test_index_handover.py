"""One index in turns: ours, RocketMQ's and ours again write it, and it is as if one of them had written all of it."""

import shutil
from pathlib import Path

import trio

from tests.store.indexes import index_files, make_index, open_log, running
from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess

SETTINGS = TEST_SETTINGS | {"maxHashSlotNum": "100", "maxIndexNum": "400"}
LOG_FILE_SIZE = int(SETTINGS["mappedFileSizeCommitLog"])
MESSAGES = 400  # With three keys each: three files and a bit.


def closed(root: Path, *, after_crash: bool) -> list[bytes]:
    """The index of a log, once our own code, alone, has opened it, caught up and closed it."""

    async def follow() -> None:
        async with running(make_index(root, open_log(root, LOG_FILE_SIZE)), after_crash=after_crash):
            pass

    trio.run(follow)
    return index_files(root)


def test_the_index_goes_on_whoever_writes(root: Path, real_namesrv: rocketmq.NameServer) -> None:
    """Its files are, byte for byte, what the log alone makes: after clean stops of both, and at our start after a kill."""
    with JavaClient(root / "client") as client:
        for turn, maker in enumerate((twinlog.Broker, rocketmq.Broker, twinlog.Broker)):
            broker: BrokerProcess = maker(root / "broker", real_namesrv.address, settings=SETTINGS)
            with broker:
                create_topic(broker.address, "Orders", queues=2)
                producer = client.producer(f"shop-{turn}", real_namesrv.address)
                keys = "schlüssel-{i} all"
                sent = producer.send("Orders", MESSAGES, threads=4, body_size=20, first=turn * MESSAGES, keys=keys)
                assert all(message.ok for message in sent)
                producer.shutdown()
                if turn == 2:
                    broker.kill()
                else:
                    broker.stop()
            shutil.copytree(broker.commit_log, root / f"anew-{turn}" / "commitlog")
            anew = closed(root / f"anew-{turn}", after_crash=False)
            assert len(anew) == -(-(turn + 1) * MESSAGES * 3 // 399)
            found = closed(broker.store, after_crash=True) if turn == 2 else index_files(broker.store)
            assert found == anew

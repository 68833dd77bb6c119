"""What clients were told is there after kill -9."""

import signal
import subprocess

import pytest

from tests.support.clients.remoting import create_topic, request
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import free_port_base
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.remoting.codes import RequestCode

pytestmark = pytest.mark.timeout(120)


def test_topics_that_were_acknowledged_are_in_the_file(tmp_path):
    """One made by an administrator, one by the message that was sent to it."""
    port = free_port_base() + 11
    settings = {"listenPort": port, "storePathRootDir": tmp_path / "store", "mappedFileSizeCommitLog": 1 << 20}
    settings |= {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    command = [PROGRAM, "broker", *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout.readline().startswith("ready ")
        create_topic(f"127.0.0.1:{port}", "ByHand", queues=3)
        fields = {"a": "P", "b": "BySending", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01a"}
        request(f"127.0.0.1:{port}", RequestCode.SEND_MESSAGE_V2, fields, body=b"hello")
        broker.send_signal(signal.SIGKILL)
    topics = JsonFile(tmp_path / "store" / "config" / "topics.json").load()["topicConfigTable"]
    assert topics["ByHand"]["writeQueueNums"] == 3
    assert topics["BySending"]["writeQueueNums"] == 4

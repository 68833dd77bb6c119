"""A change over the network holds at once, and after a restart."""

import pytest

from tests.support.clients.remoting import request
from tests.support.process_group.twinlog import Broker, NameServer

pytestmark = pytest.mark.timeout(60)


def option(broker: Broker, key: str) -> str:
    _, body = request(broker.address, 26)
    return dict(line.split("=", 1) for line in body.decode().splitlines())[key]


def test_a_change_outlives_the_broker(tmp_path):
    with NameServer(tmp_path / "namesrv") as namesrv:
        broker = Broker(tmp_path / "broker", namesrv.address, settings={"fileReservedTime": "48"})
        broker.conf.write_text("# kept\n" + broker.conf.read_text())
        with broker:
            assert option(broker, "fileReservedTime") == "48"
            header, _ = request(broker.address, 25, {}, b"fileReservedTime=24\nslaveReadEnable=true\n")
            assert header["code"] == 0
            assert option(broker, "fileReservedTime") == "24"
            header, _ = request(broker.address, 25, {}, b"storePathRootDir=/elsewhere\n")
            assert (header["code"], "cannot be changed while the broker runs" in header["remark"]) == (16, True)
        lines = broker.conf.read_text().splitlines()
        assert lines[0] == "# kept"
        assert lines[-2:] == ["fileReservedTime=24", "slaveReadEnable=true"]
        broker.start()
        with broker:
            assert (option(broker, "fileReservedTime"), option(broker, "slaveReadEnable")) == ("24", "true")

"""What a member finds on its way to etcd, for `twinlog doctor`. With a real etcd: tests/roles/test_etcd_shown.py."""

import orjson
import trio

from tests.cluster.broker.helpers import Client, make_broker
from tests.support.process_group.ports import free_broker_port, free_port
from twinlog.cluster.broker.peers.etcd_check import KEPT_SECONDS, EtcdCheck
from twinlog.cluster.etcd import diagnose
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.remoting.codes import RequestCode


async def told(broker, **fields: str) -> dict | None:
    response = await Client(broker).ask_async(RequestCode.TWINLOG_MEMBER_STATUS, b"", **fields)
    return orjson.loads(response.body).get("etcd")


async def test_an_endpoint_that_nobody_listens_at_is_a_finding_where_it_was_asked_for(tmp_path, nursery):
    """Also of a member that has no role yet, as its endpoints may be what keeps it from one."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    broker = make_broker(tmp_path, listen_port=free_broker_port(), etcd=EtcdConfig(endpoints=(endpoint,)))
    await nursery.start(broker.run)
    found = await told(broker, twinlogReach="true")
    assert found is not None
    (problem,) = [each for each in found["findings"] if each["level"] == "critical"]
    assert (problem["cause"], problem["subject"]) == ("no connection", endpoint)
    assert problem["fix"]
    plain = broker.status.member().to_json()["etcd"]
    assert (plain["findings"], plain["prefix"]) == (None, "/twinlog/")
    assert "no connection" in (plain["why"] or "no connection"), "asked by itself, too"


async def test_a_member_without_endpoints_says_nothing_of_etcd(tmp_path, nursery):
    broker = make_broker(tmp_path, listen_port=free_broker_port())
    await nursery.start(broker.run)
    assert await told(broker, twinlogReach="true") is None


async def test_endpoints_are_asked_once_in_a_while_whoever_asks(monkeypatch, autojump_clock):
    asked = []

    async def ask(config: EtcdConfig):
        asked.append(config.request_timeout_ms)
        await trio.sleep(1)
        return ()

    monkeypatch.setattr(diagnose, "diagnose", ask)
    check = EtcdCheck(EtcdConfig(endpoints=("http://127.0.0.1:1",), request_timeout_ms=60_000))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(check.look)
    assert asked == [1_500], "doctor does not wait for a minute"
    assert check.found == ()
    await trio.sleep(KEPT_SECONDS + 1)
    await check.look()
    assert len(asked) == 2

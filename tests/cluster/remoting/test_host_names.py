"""IPs of host names: kept, renewed, and never waited for by the loop."""

import socket
import threading

import pytest
import trio
from structlog.testing import capture_logs

from twinlog.cluster.remoting import host_names
from twinlog.cluster.remoting.host_names import GONE_SECONDS, RENEW_SECONDS, HostNames, Threads
from twinlog.store.util.host_name import is_host_name

GONE, SILENT = socket.EAI_NONAME, socket.EAI_AGAIN


class Names(dict):
    """What a name server knows: IPs, or the number of an error."""

    async def __call__(self, host):
        await trio.lowlevel.checkpoint()
        found = self.get(host, GONE)
        if isinstance(found, int):
            raise socket.gaierror(found, "no such name" if found == GONE else "no answer")
        return tuple(found)


@pytest.fixture
def names():
    return Names(slave=["10.0.0.2"], both=["10.0.0.3", "fd00::3"])


@pytest.fixture
async def hosts(names, nursery):
    hosts = HostNames(names)
    await nursery.start(hosts.run)
    return hosts


@pytest.mark.parametrize(
    ("host", "it_is"),
    [
        ("broker-a", True),
        ("broker_a.my-net", True),
        ("a.example.com.", True),
        ("10.0.0.300", False),
        ("10.0.0", False),
        ("", False),
        ("a b", False),
        ("-a", False),
        ("a..b", False),
        ("a" * 64, False),
    ],
)
def test_what_may_be_the_name_of_a_host(host, it_is):
    assert is_host_name(host) == it_is


async def test_an_ip_is_itself(hosts):
    assert hosts.ips_of("10.0.0.9:10911") == ("10.0.0.9",)
    assert hosts.ips_of("[fd00::1]:10911") == ("fd00::1",)
    assert hosts.error_of("10.0.0.9:10911") == ""


async def test_a_name_is_unknown_at_first_and_looked_up(hosts):
    assert hosts.ips_of("slave:10911") == ()
    assert hosts.ip_of("slave:10911") == "slave"
    await hosts.renew("slave:10911", "both:10911", "nobody:10911")
    assert hosts.ips_of("slave:10911") == ("10.0.0.2",)
    assert (hosts.ip_of("both:1"), hosts.ips("both")) == ("10.0.0.3", ("10.0.0.3", "fd00::3"))
    assert (hosts.ips("nobody"), hosts.error_of("nobody:1")) == ((), "no such name")


async def test_a_name_that_is_in_use_gets_its_new_ip(hosts, names, autojump_clock):
    changes = []
    hosts.on_change.append(lambda: changes.append(hosts.ips("slave")))
    await hosts.renew("slave:1")
    names["slave"] = ["10.0.0.7"]
    with trio.fail_after(RENEW_SECONDS * 3):
        while hosts.ips("slave") != ("10.0.0.7",):
            await trio.sleep(0.1)
    assert changes == [("10.0.0.2",), ("10.0.0.7",)]


async def test_a_silent_server_takes_no_name_away_and_one_that_is_gone_counts_for_a_minute(
    hosts, names, autojump_clock
):
    await hosts.renew("slave:1", "both:1")
    names |= {"slave": SILENT, "both": GONE}
    begun = trio.current_time()
    with capture_logs() as lines:
        while hosts.ips("both"):
            assert hosts.ips("slave") == ("10.0.0.2",)
            await trio.sleep(0.5)
    assert GONE_SECONDS - RENEW_SECONDS < trio.current_time() - begun < GONE_SECONDS + 3 * RENEW_SECONDS
    said = {(line["host"], line["why"]) for line in lines if line["event"] == "host name does not resolve"}
    assert said == {("slave", "no answer"), ("both", "no such name")}
    assert hosts.ips("slave") == ("10.0.0.2",)


async def test_a_name_nobody_asks_for_is_forgotten(hosts, names, autojump_clock):
    await hosts.renew("slave:1")
    await trio.sleep(RENEW_SECONDS * 100)
    del names["slave"]
    assert hosts.ips("slave") == ()


async def test_a_look_up_that_hangs_delays_nobody_else(nursery, monkeypatch):
    """One thread for this name, however often it is asked for; who waits for it gets the last answer."""
    monkeypatch.setattr(host_names, "WAIT_SECONDS_MAX", 0.1)
    let_go, asked = threading.Event(), []

    def look_up(host):
        asked.append(host)
        if host == "hangs":
            let_go.wait(30)
        return ("10.0.0.2",)

    hosts = HostNames(Threads(look_up))
    await nursery.start(hosts.run)
    try:
        for _ in range(3):
            await hosts.renew("hangs:1", max_age=0)
        assert hosts.ips("hangs") == ()
        await hosts.renew("slave:1")
        assert hosts.ips("slave") == ("10.0.0.2",)
        assert asked == ["hangs", "slave"]
    finally:
        let_go.set()


async def test_connections_resolve_by_it(hosts, names):
    """With its threads, not those of the disk, and with the last IPs where the server is silent."""
    names["here"] = ["127.0.0.1"]
    async with await anything_at_loopback() as listener:
        port = listener.socket.getsockname()[1]
        await (await trio.open_tcp_stream("here", port)).aclose()
        names["here"] = SILENT
        await hosts.renew("here:1", max_age=0)
        await (await trio.open_tcp_stream("here", port)).aclose()
    with pytest.raises(socket.gaierror, match="no such name"):
        await trio.open_tcp_stream("nobody", 1)


async def anything_at_loopback() -> trio.SocketListener:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return listener


async def test_strangers_names_are_bounded(hosts, monkeypatch):
    monkeypatch.setattr(host_names, "NAMES_MAX", 2)
    await hosts.renew("slave:1", "both:1", "third:1")
    assert (hosts.ips("slave"), hosts.ips("third")) == (("10.0.0.2",), ())
    assert len(hosts._names) == 2

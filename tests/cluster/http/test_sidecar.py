"""HTTP beside a service: from before it is ready to its very end, and in nobody's way."""

import errno
import socket

import httpx
import pytest
import trio

from tests.cluster.http.members import MASTER
from tests.support.process_group.ports import free_port
from twinlog.cluster.http import sidecar as beside
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.sidecar import http_sidecar
from twinlog.cluster.http.source import Source
from twinlog.cluster.remoting.member_status import MemberStatus


def source() -> Source:
    return Source(
        kind="broker", read_node=lambda: MemberStatus.from_json(MASTER), read_snapshot=lambda: None, namesrv=tuple
    )


async def answer(port: int, path: str) -> int:
    """The status, once the thread serves."""
    with trio.fail_after(30):
        async with httpx.AsyncClient(timeout=20) as http:
            return (await http.get(f"http://127.0.0.1:{port}/{path}")).status_code


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


async def test_a_service_that_starts_for_long_lives_before_it_is_ready(monkeypatch):
    monkeypatch.setattr(beside, "LONG_START_SECONDS", 0.1)
    port, service = free_port(), source()
    async with http_sidecar(service, HttpConfig(), port):
        assert (await answer(port, "livez"), await answer(port, "readyz")) == (200, 503)
        service.serves()
        assert await answer(port, "readyz") == 200
    assert is_free(port)


async def test_what_comes_before_it_serves_waits_and_is_answered():
    """The port is taken at once: a probe that comes early is not refused."""
    port, service = free_port(), source()
    async with http_sidecar(service, HttpConfig(), port), trio.open_nursery() as nursery:
        statuses: list[int] = []

        async def ask():
            statuses.append(await answer(port, "livez"))

        nursery.start_soon(ask)
        await trio.sleep(0.1)
        service.serves()
    assert statuses == [200]


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.5])
async def test_a_stop_at_any_time_closes_the_port(pause):
    port, service = free_port(), source()
    with trio.fail_after(10):
        async with http_sidecar(service, HttpConfig(), port):
            service.serves()
            await trio.sleep(pause)
    assert is_free(port)


async def test_a_service_that_stops_is_not_ready_and_lives():
    port, service = free_port(), source()
    with trio.CancelScope() as scope:
        async with http_sidecar(service, HttpConfig(), port):
            service.serves()
            assert await answer(port, "readyz") == 200
            scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)
                assert (await answer(port, "readyz"), await answer(port, "livez")) == (503, 200)
    assert is_free(port)


async def test_an_error_of_the_service_is_the_services_own():
    port = free_port()
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="no disk")):
        async with http_sidecar(source(), HttpConfig(), port):
            raise RuntimeError("no disk")
    assert is_free(port)


async def test_turned_off_there_is_no_port():
    port = free_port()
    async with http_sidecar(source(), HttpConfig(enable=False), port):
        assert is_free(port)


async def test_a_port_that_is_taken_or_does_not_exist_costs_http_only_unless_it_was_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with http_sidecar(source(), HttpConfig(), port):
            pass
        with pytest.raises(OSError, match="httpListenPort"):
            async with http_sidecar(source(), HttpConfig(listen_port=port), port):
                pass
    async with http_sidecar(source(), HttpConfig(), 65_538):
        pass
    with pytest.raises(OSError, match="httpBindAddress"):
        async with http_sidecar(source(), HttpConfig(bind_address="192.0.2.1"), port):
            pass

"""Operations without a shell: what the commands and, later, HTTP call."""

from functools import partial

import pytest
import trio

from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.subscription import From
from twinlog.cluster.remoting.errors import RemotingConnectError


@pytest.fixture
async def admin(cluster):
    async with open_admin((cluster.namesrv,)) as opened:
        yield opened


async def send(admin, body: bytes) -> None:
    await Producer(admin.api).send(OutgoingMessage(topic="orders", body=body))


async def held(cluster, count: int) -> None:
    """Until the broker holds so many pulls; there is no event for it."""
    with trio.fail_after(10):
        while len(cluster.master.held_pulls) < count:
            await trio.sleep(0.01)


async def test_follow_waits_for_what_comes(cluster, admin):
    """The first message is there, the others come while the broker holds the pulls."""
    got: list[bytes] = []

    def deliver(message) -> bool:
        got.append(message.body)
        return len(got) < 3

    await send(admin, b"one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(admin.consume, "orders", deliver, follow=True))
        await held(cluster, 4)
        await send(admin, b"two")
        await send(admin, b"three")
    assert got == [b"one", b"two", b"three"]


async def test_from_last_follows_only_what_is_new(cluster, admin):
    got: list[bytes] = []

    def deliver(message) -> bool:
        got.append(message.body)
        return False

    await send(admin, b"old")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(admin.consume, "orders", deliver, start=From.LAST, follow=True))
        await held(cluster, 4)
        await send(admin, b"new")
    assert got == [b"new"]


async def test_the_second_name_server_is_asked_when_the_first_is_down(cluster):
    async with open_admin(("127.0.0.1:1", cluster.namesrv)) as admin:
        assert len((await admin.list_members()).members) == 2


async def test_no_name_server_at_all():
    async with open_admin(("127.0.0.1:1",)) as admin:
        with pytest.raises(RemotingConnectError):
            await admin.list_members()

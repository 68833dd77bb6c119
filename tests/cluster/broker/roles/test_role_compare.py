"""Bytes that histories call equal are compared, too, before anything is cut and before a master gives its role away."""

import os
from struct import Struct
from zlib import crc32

import pytest
import trio

from tests.support.group.stores import peers_of, role_group
from twinlog.cluster.broker.peers.role_messages import ReinitRequest, RewindRequest, RoleRefusedError
from twinlog.ha.errors import HAPeerError

BODY = b"x" * 100  # As Node.put() has it.
BODY_CRC = 8  # Where a record has it.
_U32 = Struct(">I")


def forge(node, number, *, is_sound=True):
    """Give a record of a member's log another body. Returns where it begins."""
    path = min((node.root / "commitlog").iterdir())
    data, at = path.read_bytes(), 0
    for _ in range(number):
        at += _U32.unpack_from(data, at)[0]
    forged = b"y" * len(BODY)
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), forged, data.index(BODY, at))
        os.pwrite(file.fileno(), _U32.pack(crc32(forged) & 0x7FFFFFFF if is_sound else 0), at + BODY_CRC)
    return at


@pytest.fixture
async def overtaken(tmp_path, autojump_clock, nursery):
    """The first of two was cut off with messages of its own, and is down now; the second is master."""
    group = role_group(nursery, tmp_path, config={"auto_rewind": False})
    await group.start()
    a, b = group.members
    a.put(4)
    await group.settled()
    group.isolate(a)
    a.put(2)
    assert (await group.change("failover", b)).error == ""
    b.put(1)
    await a.kill()
    group.isolate()
    return group


async def test_rewind_cuts_nothing_while_bytes_below_the_cut_differ(autojump_clock, overtaken):
    a, b = overtaken.members
    differs = forge(a, 1)
    await a.start()
    await trio.sleep(10)
    end = a.store.max_offset
    assert a.ha.client.finding.kind == "diverged"
    for ask in (RewindRequest(dry_run=True), RewindRequest(), RewindRequest(accept_data_loss=end - differs - 1)):
        with pytest.raises(RoleRefusedError, match=f"differs from its master's from byte {differs} on") as refusal:
            await a.roles.rewind(ask)
    assert f"--accept-data-loss {end - differs}" in str(refusal.value)
    assert a.store.max_offset == end
    await a.roles.rewind(RewindRequest(accept_data_loss=end - differs))
    assert await overtaken.settled() is b
    assert overtaken.are_equal()


async def test_rewind_cuts_nothing_without_a_comparison(autojump_clock, overtaken):
    a, b = overtaken.members
    await a.start()
    await trio.sleep(10)
    end = a.store.max_offset
    a.ha.peer_of = lambda _address: None
    with pytest.raises(HAPeerError, match="cannot be compared"):
        await a.roles.rewind(RewindRequest())
    assert a.store.max_offset == end
    a.ha.peer_of = peers_of(a)
    await a.roles.rewind(RewindRequest())
    assert await overtaken.settled() is b


async def test_no_switchover_to_a_log_whose_last_bytes_are_others(autojump_clock, pair):
    a, b = pair.members
    a.put(4)
    await pair.settled()
    forge(b, 2)
    state = await pair.change("switchover", b)
    assert "are not the master's" in state.error
    assert a.word == "serving"
    assert a.parts.effects.done[-1] == "release"
    assert b.roles.member.promised() == a.roles.member.promised(), "nothing was begun"
    a.put()
    assert await a.is_acknowledged()


async def test_no_switchover_to_a_log_that_is_damaged(autojump_clock, pair):
    """It follows, because all that comes behind the damage is equal."""
    a, b = pair.members
    a.put(400)
    await pair.settled()
    await b.stop()
    differs = forge(b, 2, is_sound=False)
    (b.side / "digest").unlink(missing_ok=True)
    await b.start()
    await pair.settled()
    state = await pair.change("switchover", b)
    assert f"holds the same bytes; needed equal logs; actual a difference at {differs}" in state.error
    assert a.word == "serving"


async def test_no_reinit_of_a_slave_that_has_what_its_master_lost(autojump_clock, pair):
    """It may be the last copy. It becomes master instead, and then the other one may begin anew."""
    a, b = pair.members
    a.put(400)
    await pair.settled()
    for node in (b, a):
        await node.stop()
    lost = forge(a, 2, is_sound=False)
    (a.side / "digest").unlink(missing_ok=True)
    await a.start()
    await b.start()
    await trio.sleep(10)
    end = b.store.max_offset
    assert b.ha.client.finding.is_lost_there
    for dry_run in (True, False):
        with pytest.raises(
            RoleRefusedError, match=f"has a record at {lost} that the log of its master, .*, has lost"
        ) as refusal:
            await b.roles.reinit(ReinitRequest(dry_run=dry_run))
        assert "twinlog failover --candidate" in str(refusal.value)
    assert b.store.max_offset == end
    await a.stop()
    assert (await pair.change("failover", b)).error == ""
    await a.start()
    await trio.sleep(10)
    await a.roles.reinit(ReinitRequest())
    assert await pair.settled() is b
    assert pair.are_equal()

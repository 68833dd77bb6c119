"""Request 20002: digests of a range of the log."""

import pytest
import trio

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import make_parts
from tests.helpers import log_bytes
from twinlog.cluster.broker.processors import digests
from twinlog.store.integrity.digest import BLOCK_SIZE, digests_of

BLOCK = BLOCK_SIZE


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.digests())) as client:
        for number in range(20):
            put(client.broker, body=bytes([number]) * 20_000)
        yield client


async def test_the_digests_of_a_range(client):
    end = client.broker.store.max_offset
    reply = await client.ask_async(20002, start=10, end=end)
    assert (reply.code, reply.ext) == (0, {"start": "10", "end": str(end), "blocksPerDigest": "1"})
    assert reply.body == digests_of(log_bytes(client.broker.store)[10:], 10)


async def test_groups_of_blocks(client):
    reply = await client.ask_async(20002, start=0, end=6 * BLOCK, blocksPerDigest=4)
    found = await client.broker.store.range_digester.digests(0, 6 * BLOCK, blocks_per_digest=4)
    assert reply.ext == {"start": "0", "end": str(6 * BLOCK), "blocksPerDigest": "4"}
    assert reply.body == b"".join(found.digests)
    assert len(found.digests) == 2


async def test_a_long_answer_ends_early_and_says_so(client, monkeypatch):
    monkeypatch.setattr(digests, "DIGESTS_MAX", 2)
    reply = await client.ask_async(20002, start=5, end=client.broker.store.max_offset)
    assert reply.ext["end"] == str(2 * BLOCK)
    assert len(reply.body) == 32


async def test_bytes_that_the_log_does_not_hold_are_code_22(client):
    end = client.broker.store.max_offset
    reply = await client.ask_async(20002, start=0, end=end + 1)
    assert reply.code == 22
    assert reply.remark == f"bytes 0 to {end + 1} are not all in this log, which holds 0 to {end}"


@pytest.mark.parametrize("fields", [{"start": -1, "end": 5}, {"start": 5, "end": 5}])
async def test_no_range_is_code_29(client, fields):
    assert (await client.ask_async(20002, **fields)).code == 29
    assert (await client.ask_async(20002, start=0, end=5, blocksPerDigest=0)).code == 29


async def test_when_too_many_wait_the_next_one_is_told_so(client, monkeypatch, autojump_clock):
    """The others get their answers."""
    monkeypatch.setattr(digests, "WAITING_MAX", 2)
    client.broker.store.range_digester.bytes_per_second = BLOCK
    codes = []

    async def ask():
        codes.append((await client.ask_async(20002, start=0, end=BLOCK)).code)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(ask)
    assert sorted(codes) == [0, 0, 0, 2]


async def test_a_disk_that_does_not_read_is_code_1(client, monkeypatch):
    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.pread", refuse)
    reply = await client.ask_async(20002, start=0, end=BLOCK)
    assert reply.code == 1
    assert "Input/output error" in reply.remark


# Request 20003


async def test_the_record_that_a_byte_belongs_to(client):
    store = client.broker.store
    record = bytes(store.message_at(0))
    reply = await client.ask_async(20003, offset=len(record) - 1)
    assert (reply.code, reply.ext) == (0, {"start": "0", "end": str(len(record))})
    assert reply.body == record


async def test_a_damaged_record_is_given_as_it_lies(client):
    store = client.broker.store
    size = len(store.message_at(0))
    file = store.commit_log.files.file_at(0)
    file.write_at(200, b"!")
    reply = await client.ask_async(20003, offset=300)
    assert (reply.ext["start"], reply.ext["end"]) == ("0", str(size))
    assert "CRC" in reply.ext["problem"]
    assert reply.body == log_bytes(store)[:size]


async def test_a_byte_that_the_log_does_not_hold_is_code_22(client):
    end = client.broker.store.max_offset
    for offset in (-1, end):
        reply = await client.ask_async(20003, offset=offset)
        assert (reply.code, reply.remark) == (22, f"byte {offset} is not in this log, which holds 0 to {end}")

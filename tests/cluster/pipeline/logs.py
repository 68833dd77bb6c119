"""Store directories built from messages, byte by byte: small files, damage, and bodies that look like records."""

import random
from collections.abc import Iterable
from pathlib import Path

import attrs

from tests.store.records import HOST_V4, HOST_V6
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.sources.walk import Broken
from twinlog.store.record.message import MAGIC_BLANK, MAGIC_V2, SIZE_AND_MAGIC, Message, body_crc, encode_message

NOW = 1_700_000_000_000
BODY_AT = 88  # With two IPv4 hosts.


def message(number: int, body: bytes = b"x" * 30, topic: str = "T1", **fields: object) -> Message:
    """One of a producer's messages."""
    properties = b"UNIQ_KEY\x01%032X" % (number * 7919) + b"\x02TAGS\x01Tag%d" % (number % 3)
    given = {"properties_raw": properties, "store_timestamp": NOW + number, "queue_id": 0, **fields}
    return Message(topic=topic, body=body, **given)


def records(messages: Iterable[Message], start: int, file_size: int) -> tuple[bytes, list[Message]]:
    """Bytes of the log from `start` on, with blanks at the ends of files, and the messages with their offsets."""
    data, placed = bytearray(), []
    for number, each in enumerate(messages):
        size = len(encode_message(each))
        room = file_size - (start + len(data)) % file_size
        if size + 8 > room:
            data += SIZE_AND_MAGIC.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        at = start + len(data)
        placed.append(attrs.evolve(each, phy_offset=at, queue_offset=number, body_crc=body_crc(each.body), size=size))
        data += encode_message(placed[-1])
    return bytes(data), placed


def write_log(root: Path, data: bytes, start: int, file_size: int) -> Path:
    """A store directory with only a log; its last file is whole, with zeros behind its end."""
    directory = root / "commitlog"
    directory.mkdir(parents=True, exist_ok=True)
    low = start - start % file_size
    image = bytes(start - low) + data
    for at in range(0, max(len(image), 1), file_size):
        (directory / f"{low + at:020d}").write_bytes(image[at : at + file_size].ljust(file_size, b"\0"))
    return root


def store_files(root: Path, data: bytes, start: int, file_size: int) -> StoreFiles:
    """The expected inspection of such a directory, with the end of the data."""
    write_log(root, data, start, file_size)
    paths = sorted((root / "commitlog").iterdir())
    log = tuple(LogFile(StoreUri(str(path)), int(path.name), path.stat().st_size) for path in paths)
    uri = StoreUri(str(root))
    return StoreFiles(uri=uri, log=log, file_size=file_size, first=start, end=start + len(data))


def forged(number: int, at: int, count: int) -> Message:
    """A message for offset `at`, whose body consists of records that name their actual offsets."""
    body = bytearray(b"\xda\xa3\x20\xa7 no record ")
    for each in range(count):
        inner = message(1000 + each, b"y" * 20, "Forged")
        inner = attrs.evolve(inner, phy_offset=at + BODY_AT + len(body), body_crc=body_crc(inner.body))
        body += encode_message(inner)
    return message(number, bytes(body))


def chained(count: int) -> list[Message]:
    """Messages of which every second one has a body with the head of a record: its properties go on to the next such head.

    So these make up a log of their own, beside the one that is there; nothing but bodies has a checksum.
    """
    plain = message(0, b"y" * 100)
    period = len(encode_message(plain)) + len(encode_message(message(0, bytes(200))))
    made, at = [], 0
    for number in range(count):
        inner = encode_message(Message("X", 0, b"", bytes(period - BODY_AT - 4), phy_offset=at + BODY_AT + 50))
        assert len(inner) == period
        made += [message(number, (bytes(50) + inner)[:200]), plain]
        at += period
    return made


def traffic(count: int, seed: int = 0, size_max: int = 700) -> list[Message]:
    """Messages of several kinds: both widths of hosts, long topics, transactions, empty bodies, invalid text."""
    chance, found = random.Random(seed), []
    odd = [b"", b"A\x01b\x02\x02C\x01", b"\xff\xfe\x01\xc3\x28", b"K\x01v\x02K\x01w\x02", "键\x01长标签".encode()]
    for number in range(count):
        born_v6, store_v6 = (chance.random() < 0.1 for _ in range(2))
        is_long = chance.random() < 0.05
        more = b"\x02" + chance.choice(odd) if chance.random() < 0.2 else b""
        plain = message(number, chance.randbytes(chance.randrange(size_max)), f"T{number % 4}")
        found.append(
            attrs.evolve(
                plain,
                topic="%RETRY%" + "g" * 200 if is_long else plain.topic,
                magic=MAGIC_V2 if is_long else plain.magic,
                properties_raw=plain.properties_raw + more,
                born_host=HOST_V6 if born_v6 else HOST_V4,
                store_host=HOST_V6 if store_v6 else HOST_V4,
                sys_flag=chance.choice((0, 0, 4, 8, 12, 0x301)) | born_v6 * 0x10 | store_v6 * 0x20,
                born_timestamp=NOW - chance.randrange(1000),
                flag=chance.randrange(-5, 5),
                reconsume_times=number % 3,
                prepared_transaction_offset=number,
            )
        )
    return found


def is_cover(parts: Iterable[Split], start: int, end: int) -> bool:
    """True if splits contain every byte from `start` to `end` exactly once."""
    at = start
    for part in sorted(parts, key=lambda part: part.start):
        if part.start != at or part.end <= part.start:
            return False
        at = part.end
    return at == end


def merged(pieces: Iterable[Broken]) -> list[Broken]:
    """Gaps of several splits in order, neighbours merged under the first one's reason."""
    found: list[Broken] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if found and found[-1].end == piece.start and found[-1].kind is piece.kind:
            found[-1] = attrs.evolve(found[-1], end=piece.end)
        else:
            found.append(piece)
    return found

"""Frames that were captured from RocketMQ."""

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

CAPTURES = sorted((Path(__file__).parents[2] / "golden" / "wire").glob("*.jsonl.xz"))


@frozen
class Frame:
    """One captured frame; `data` is whole, with its length word."""

    data: bytes
    header: bytes
    body: bytes
    is_text: bool

    @property
    def payload(self) -> bytes:
        return self.data[4:]


def frames(capture: Path) -> Iterator[Frame]:
    with lzma.open(capture, "rt") as lines:
        for line in lines:
            seen = json.loads(line)
            header = seen["header"].encode() if "header" in seen else base64.b64decode(seen["header_b64"])
            body = base64.b64decode(seen["body_b64"]) if "body_b64" in seen else seen.get("body", "").encode()
            head = seen["total"].to_bytes(4) + seen["header_length_word"].to_bytes(4)
            yield Frame(head + header + body, header, body, "body" in seen)

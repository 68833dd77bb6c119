"""What was captured between a real client and a real broker, as commands in order."""

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from twinlog.cluster.remoting.command import RemotingCommand, decode

GOLDEN = Path(__file__).parents[2] / "golden"


def frames(capture: str, kind: str = "wire") -> Iterator[RemotingCommand]:
    """Every frame of both directions. What the files are: tests/golden/README.md."""
    for _, command in directed_frames(capture, kind):
        yield command


def directed_frames(capture: str, kind: str = "wire") -> Iterator[tuple[tuple[int, str], RemotingCommand]]:
    """The same, each with its connection and its direction, `>` to the broker."""
    with lzma.open(GOLDEN / kind / f"{capture}-broker.jsonl.xz", "rt") as lines:
        for line in lines:
            seen = json.loads(line)
            header = seen["header"].encode() if "header" in seen else base64.b64decode(seen["header_b64"])
            body = base64.b64decode(seen["body_b64"]) if "body_b64" in seen else seen.get("body", "").encode()
            yield (seen["conn"], seen["dir"]), decode(seen["header_length_word"].to_bytes(4) + header + body)

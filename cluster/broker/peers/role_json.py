"""The bodies of the requests about roles: JSON objects with names in camelCase. What a member says of its log's history (1007)
is RocketMQ 5's EpochEntryCache, with all that only twinlog members understand beside it, under `twinlog`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson

from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import EpochEntry, check_history
from twinlog.store.util.plain import from_plain, to_plain

__all__ = ["VERSION", "encode", "epoch_list", "from_plain", "history_body", "read_history", "to_plain"]

VERSION = 1  # Of what is said under `twinlog`.


def encode(value: object) -> bytes:
    """A body."""
    return orjson.dumps(to_plain(value))


def epoch_list(entries: Sequence[EpochEntry], max_offset: int) -> list[dict[str, int]]:
    """RocketMQ's: the last epoch ends where the log does."""
    ends = [*(after.start_offset for _, after in pairwise(entries)), max_offset]
    return [
        {"epoch": entry.epoch, "startOffset": entry.start_offset, "endOffset": end}
        for entry, end in zip(entries, ends, strict=True)
    ]


def history_body(history: PeerHistory, *, cluster: str, name: str, broker_id: int, more: Mapping[str, Any]) -> bytes:
    """The answer to 1007."""
    ours = to_plain(history)
    ours["epochs"] = ours.pop("entries")
    return orjson.dumps(
        {
            "clusterName": cluster,
            "brokerName": name,
            "brokerId": broker_id,
            "epochList": epoch_list(history.entries, history.max_offset),
            "maxOffset": history.max_offset,
            "twinlog": {"version": VERSION, **ours, **more},
        }
    )


def read_history(body: bytes | memoryview) -> PeerHistory | None:
    """Out of the answer to 1007; None: it is not a twinlog member's. Raises ValueError."""
    answer = orjson.loads(body)
    said = answer.get("twinlog") if isinstance(answer, dict) else None
    if not isinstance(said, dict):
        return None
    if said.get("version") != VERSION:
        raise ValueError(f"its version of epochs is {said.get('version')}, ours {VERSION}")
    history = from_plain(PeerHistory, said | {"entries": said.get("epochs")})
    check_history(history.entries)
    if history.entries[-1].id != history.id:
        raise ValueError(f"its history does not end with epoch {history.id.epoch}")
    return history

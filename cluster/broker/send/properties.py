"""Properties of a message as they are stored: CLUSTER added, WAIT removed, in RocketMQ's order.

Sources: SendMessageProcessor.asyncSendMessage, MessageDecoder; RocketMQ 4.9.8. Producers name the
same properties in the same order for most messages, so the order is computed once per list of names and cached.
"""

from typing import Any, NamedTuple

from attrs import define, field

from twinlog.store.record.properties import (
    CLUSTER,
    DELAY,
    DISPATCH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    WAIT,
    hash_map_order,
    split_properties,
    tags_code,
)

TRANSACTION = "TRAN_MSG"
_new_tuple: Any = tuple.__new__  # Twice as fast as the NamedTuple's constructor.
_PLANS_MAX, _NAMES_LENGTH_MAX = 4096, 1024  # Bounds of the cache: plans, and characters of names in each.


class StoredProperties(NamedTuple):
    """Properties for the record of a plain message, with the values that the broker reads from them."""

    raw: bytes
    tags_code: int
    wait: bool  # The producer waits for disk and slaves.
    special: bool  # Has a DELAY or TRAN_MSG property: not a plain message.


class _Plan(NamedTuple):
    order: list[int]  # Of the segments; CLUSTER's is the last of them.
    wait_at: int
    tags_at: int
    special: bool


@define
class SendProperties:
    """Rewrites properties strings for one cluster."""

    cluster: str
    _own: str = field(init=False)  # The property that the broker adds.
    _plans: dict[tuple[str, ...], _Plan | None] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._own = f"{CLUSTER}{NAME_VALUE_SEPARATOR}{self.cluster}"

    def rewrite(self, text: str) -> StoredProperties:
        """Turn the string that the client sent into the stored one."""
        segments = text.rstrip(PROPERTY_SEPARATOR).split(PROPERTY_SEPARATOR)
        try:
            names = tuple([segment[: segment.index(NAME_VALUE_SEPARATOR)] for segment in segments])
            plan = self._plans[names]
        except (ValueError, KeyError):
            plan = None
        if plan is None or "\x01\x02" in text or text.endswith(NAME_VALUE_SEPARATOR):
            segments = [f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in dict(split_properties(text)).items()]
            plan = self._plan_for(tuple(segment.partition(NAME_VALUE_SEPARATOR)[0] for segment in segments))
        segments.append(self._own)
        order, wait_at, tags_at, special = plan
        raw = PROPERTY_SEPARATOR.join([segments[i] for i in order]).encode()
        code = tags_code(segments[tags_at][len(TAGS) + 1 :]) if tags_at >= 0 else 0
        wait = wait_at < 0 or segments[wait_at][len(WAIT) + 1 :].lower() == "true"
        stored: StoredProperties = _new_tuple(StoredProperties, (raw, code, wait, special))
        return stored

    def _plan_for(self, names: tuple[str, ...]) -> _Plan:
        """Return the plan for these names, each of which occurs once."""
        plan = self._plans.get(names)
        if plan is None:
            index = {name: i for i, name in enumerate(names)}
            everything, own = [*names, CLUSTER], len(names)
            # The broker's value replaces the client's, which a forwarded message has.
            entries = [own if name == CLUSTER else i for i, name in enumerate(names)]
            entries += [] if CLUSTER in index else [own]
            kept = [i for i in entries if everything[i] != WAIT and everything[i] not in DISPATCH]
            order = hash_map_order([everything[i] for i in kept], puts=len(entries))
            special = DELAY in index or TRANSACTION in index
            plan = _Plan([kept[i] for i in order], index.get(WAIT, -1), index.get(TAGS, -1), special)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            if sum(map(len, names)) <= _NAMES_LENGTH_MAX:
                self._plans[names] = plan
        return plan

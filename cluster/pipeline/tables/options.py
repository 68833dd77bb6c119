"""Parses the options of the tables from Spark's texts. Pure."""

from collections import Counter
from collections.abc import Mapping

from attrs import frozen

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.log_bytes import SPLIT_SIZE
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.cluster.pipeline.tables.texts import flag_of, list_of, lowered, number_of

_BYTES_PER_TRIGGER = 256 << 20


@frozen(kw_only=True)
class ReadOptions:
    """Options of a reader; schemas.py describes each. `start` None: the current end."""

    members: tuple[StoreUri, ...]  # Named `shown` in rows and checkpoints.
    body: bool = False
    inflate: InflateLimits | None = None  # Limits of inflated bodies; None: bodies stay as they are stored.
    topics: frozenset[str] | None = None
    unconfirmed: bool = False
    brokers: tuple[str, ...] = ()
    split_size: int = SPLIT_SIZE
    index_slots: int | None = None
    start: int | None = 0
    bytes_per_trigger: int = _BYTES_PER_TRIGGER
    fail_on_data_loss: bool = True
    push_filters: bool = False

    def broker_of(self, number: int) -> str | None:
        """Address of the broker of member `number`, if named."""
        return self.brokers[number] if self.brokers else None


def read_options(texts: Mapping[str, str]) -> ReadOptions:
    """Parse the options; names are case-insensitive, as everywhere in Spark. Raises ReadRefusedError, naming the option."""
    options = lowered(texts)
    members = tuple(map(StoreUri, list_of(options.get("path", ""))))
    if not members:
        raise ReadRefusedError("option path is missing: name the store directory, or several separated by commas")
    name, times = Counter(member.shown for member in members).most_common(1)[0]
    if times > 1:
        raise ReadRefusedError(f"option path names {name} twice: its rows would be indistinguishable")
    brokers = list_of(options.get("broker", ""))
    if brokers and len(brokers) != len(members):
        raise ReadRefusedError(
            f"option broker names {len(brokers)} brokers for {len(members)} stores: name one for each, in order"
        )
    slots = options.get("indexslots")
    inflates = flag_of(options, "inflate", False)
    bounds = InflateLimits(
        size_max=number_of(options, "inflateSizeMax", InflateLimits().size_max),
        ratio_max=number_of(options, "inflateRatioMax", InflateLimits().ratio_max),
    )
    return ReadOptions(
        members=members,
        body=flag_of(options, "body", False) or inflates,
        inflate=bounds if inflates else None,
        topics=frozenset(list_of(options.get("topics", ""))) or None,
        unconfirmed=flag_of(options, "unconfirmed", False),
        brokers=tuple(brokers),
        split_size=number_of(options, "splitSize", SPLIT_SIZE),
        index_slots=number_of(options, "indexSlots", 1) if slots else None,
        start=_start(options.get("startingoffset", "earliest")),
        bytes_per_trigger=number_of(options, "maxBytesPerTrigger", _BYTES_PER_TRIGGER),
        fail_on_data_loss=flag_of(options, "failOnDataLoss", True),
        push_filters=flag_of(options, "pushFilters", False),
    )


def _start(text: str) -> int | None:
    text = text.strip().lower()
    if text == "earliest":
        return 0
    if text == "latest":
        return None
    if not text.isdecimal():
        raise ReadRefusedError(
            f"option startingOffset is {text!r}: allowed are earliest, latest or an offset of the log"
        )
    return int(text)

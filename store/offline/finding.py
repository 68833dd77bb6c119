"""What a check of a store directory can find. Plain values: the command line prints them and describes them as JSON Schema."""

from enum import StrEnum

from attrs import frozen


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # Messages are lost, damaged or cannot be found where they should be; or a start will end because of it.
    WARNING = "warning"  # Worth a look; no message is harmed.


class Kind(StrEnum):
    """What is wrong. docs/reference/formats/findings.md says more about each."""

    STRAY_ENTRY = "stray-entry"
    WRONG_FILE_SIZE = "wrong-file-size"
    MISSING_FILE = "missing-file"
    UNREADABLE_FILE = "unreadable-file"
    DAMAGED_RECORD = "damaged-record"
    LOG_TAIL = "log-tail"
    QUEUE_OFFSET = "queue-offset"
    STORE_TIME = "store-time"
    UNIT_MISSING = "unit-missing"
    UNIT_WRONG = "unit-wrong"
    UNIT_DANGLING = "unit-dangling"
    INDEX_HEADER = "index-header"
    INDEX_SLOT = "index-slot"
    INDEX_ITEM = "index-item"
    INDEX_GAP = "index-gap"
    DIGEST = "digest"
    CHECKPOINT = "checkpoint"
    CONFIG_FILE = "config-file"
    SIDE_FILE = "side-file"
    ROLE_FILE = "role-file"
    UNFINISHED_CUT = "unfinished-cut"


@frozen(kw_only=True)
class Finding:
    """One thing that is not as it should be; what does not apply is None.

    `file` is relative to the store's root where it lies below it, `position` counts bytes in that file. `phy_offset` counts
    bytes of the log, `queue_offset` messages of a queue. `count` such things in a row are one finding.
    """

    kind: Kind
    severity: Severity = Severity.ERROR
    message: str
    file: str | None = None
    position: int | None = None
    phy_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: int | str | None = None
    actual: int | str | None = None
    count: int = 1

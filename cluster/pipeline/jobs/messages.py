"""The readers' own messages in errors of Spark, which has them at the end of a worker's traceback within its own text."""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import TracebackType

from attrs import frozen
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from twinlog.cluster.pipeline.tables.texts import warn

_REFUSAL = re.compile(
    r"^twinlog\.cluster\.pipeline\.[\w.]+\.(?:(?:Read|Write)RefusedError|NotAStoreError|UnreadableError): (.+)$",
    re.MULTILINE,
)
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def message_of(error: BaseException) -> str:
    """The useful part of a Spark error: the reader's own message, or Spark's first line."""
    text = str(error)
    refusal = _REFUSAL.search(text)
    return refusal[1] if refusal is not None else text.partition("\n")[0]


@cache
def tell_messages_first() -> None:
    """Let Python print the reader's message before the traceback of a Spark error that nobody catches. Done once."""
    sys.excepthook = MessageFirst(sys.excepthook)


@frozen
class MessageFirst:
    """A sys.excepthook: prints the message, then does what the hook before it does."""

    before: Hook

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with suppress(Exception):  # Spark asks its JVM for the text, which may be gone.
            if isinstance(error, PySparkException | Py4JError) and _REFUSAL.search(str(error)):
                warn(message_of(error))
        self.before(kind, error, trace)

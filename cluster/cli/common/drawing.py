"""The classes of rich that draw on a terminal. In a module of their own: only a command that draws waits for rich."""

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

__all__ = [
    "BarColumn",
    "Console",
    "DownloadColumn",
    "Group",
    "Live",
    "Padding",
    "Progress",
    "Table",
    "TaskProgressColumn",
    "Text",
    "TextColumn",
    "TimeRemainingColumn",
    "TransferSpeedColumn",
]

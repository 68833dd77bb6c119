"""The classes of rich that draw on a terminal. In a module of their own: only a command that draws waits for rich."""

from rich.console import Console as Console
from rich.console import Group as Group
from rich.live import Live as Live
from rich.padding import Padding as Padding
from rich.progress import BarColumn as BarColumn
from rich.progress import DownloadColumn as DownloadColumn
from rich.progress import Progress as Progress
from rich.progress import TaskProgressColumn as TaskProgressColumn
from rich.progress import TextColumn as TextColumn
from rich.progress import TimeRemainingColumn as TimeRemainingColumn
from rich.progress import TransferSpeedColumn as TransferSpeedColumn
from rich.table import Table as Table
from rich.text import Text as Text

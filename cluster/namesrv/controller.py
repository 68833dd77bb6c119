"""What the name server's handlers work on. Source: NamesrvController.java (RocketMQ 4.9.8)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from attrs import AttrsInstance, define, field

from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.kv_config import KVConfigManager
from twinlog.cluster.namesrv.route_info import RouteInfoManager
from twinlog.store.util.sync import write_durably
from twinlog.store.util.wakeup import Wakeup


@define(eq=False)
class NamesrvController:
    """The tables, the configuration in force and the clock (seconds, monotonic)."""

    config: NamesrvConfig  # Replaced as a whole when request 318 changes something.
    kv: KVConfigManager
    clock: Callable[[], float]
    other_configurations: Sequence[AttrsInstance] = ()  # What request 319 shows besides `config`.
    config_file: Path | None = None  # Where changes are kept; None: they last until the end of the process.
    routes: RouteInfoManager = field(factory=RouteInfoManager)
    config_lock: trio.Lock = field(factory=trio.Lock, init=False)
    config_changed: Wakeup = field(factory=Wakeup, init=False)

    async def keep(self, values: dict[str, str]) -> None:
        """Put these keys into the configuration file, durably; comments and the order of lines stay. Raises OSError."""
        if self.config_file is not None and values:
            await trio.to_thread.run_sync(_rewrite, self.config_file.resolve(), values)


def _rewrite(path: Path, values: dict[str, str]) -> None:
    # latin-1 keeps every byte as it is, whatever the file's encoding.
    text = path.read_bytes().decode("latin-1")
    write_durably(path, with_values(text, values).encode("latin-1"))

"""A name server and a broker for tests, as one process."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

from twinlog.cluster.testing.calls import Servers
from twinlog.cluster.testing.ports import BROKER_OFFSETS, HOST, Reservation, reserve
from twinlog.cluster.testing.process import ServerProcess, StartError, forget, program

TRIES = 3  # A port that was free may be taken by another program before the server has it.
IN_USE = "is in use by"
GROUP = "broker-a"
# Small files, and nothing that depends on how full this machine's disk is.
SETTINGS = {
    "brokerName": GROUP,
    "brokerIP1": HOST,
    "bindAddress": HOST,
    "haListenHost": HOST,
    "httpEnable": "false",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "enablePropertyFilter": "true",
}


@define(eq=False, kw_only=True)
class RocketMQ(Servers):
    """A name server and a broker, both on 127.0.0.1, as one process. `namesrv` is what a client is given."""

    broker: str
    directory: Path
    process: ServerProcess = field(repr=False)
    ports: tuple[Reservation, ...] = field(repr=False)

    @property
    def log(self) -> Path:
        """Its log file."""
        return self.process.log

    @property
    def pid(self) -> int:
        """Its process id. Raises GoneError."""
        return self.process.pid

    def restart(self, *, kill: bool = False) -> None:
        """Stop it, cleanly or with SIGKILL, and start it again, with the same addresses and data. Raises StartError."""
        if kill:
            self.process.kill()
        else:
            self.process.stop()
        self.process.start()
        self.process.wait_ready()

    def freeze(self) -> None:
        """Let it stand still: it keeps its connections, and answers nothing, until thaw()."""
        self.process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self.process.thaw()

    def close(self) -> None:
        """End it, and remove its directory."""
        super().close()
        forget(self.process)
        for port in self.ports:
            port.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def start_rocketmq(
    directory: Path | str, *, settings: Mapping[str, str] | None = None, port: int | None = None
) -> RocketMQ:
    """Start a name server and a broker, which are ready when this returns. Use it in `with`, or call close().

    `directory`: a new directory of theirs, removed by close(). `settings`: keys of broker.conf. `port`: of the name server; None,
    as for the broker: a free one. Raises StartError.
    """
    place = own_directory(directory)
    for attempt in range(TRIES):
        server = _prepared(place, settings or {}, port)
        try:
            server.process.start()
            server.process.wait_ready()
        except StartError as error:
            log = server.process.end_of_log()
            server.close()
            if port is None and IN_USE in log and attempt < TRIES - 1:
                place = own_directory(directory)
                continue
            raise error from None
        except BaseException:
            server.close()
            raise
        return server
    raise AssertionError("unreachable")


def _prepared(directory: Path, settings: Mapping[str, str], port: int | None) -> RocketMQ:
    reserved = tuple(reserve(offsets) for offsets in ((0,), BROKER_OFFSETS))
    namesrv_port, broker_port = port or reserved[0].number, reserved[1].number
    own = {**SETTINGS, "listenPort": str(broker_port), "storePathRootDir": str(directory / "store"), **settings}
    command = program("standalone", "--port", str(namesrv_port), "--until-stdin-closes")
    command += [part for key, value in own.items() for part in ("--set", f"{key}={value}")]
    return RocketMQ(
        namesrv=f"{HOST}:{namesrv_port}",
        broker=f"{HOST}:{own['listenPort']}",
        directory=directory,
        process=ServerProcess("rocketmq", command, directory / "rocketmq.log"),
        ports=reserved,
    )


def own_directory(path: Path | str) -> Path:
    """Make a directory that is not there, or is empty. Raises StartError."""
    directory = Path(path).absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if next(directory.iterdir(), None) is not None:
            raise StartError(f"The directory {directory} is not empty, and close() would remove it. Give a new one.")
        (directory / "try").touch()
        (directory / "try").unlink()
    except OSError as error:
        raise StartError(
            f"The directory {directory} cannot be used: {error}. Give another one; pytest's is below --basetemp."
        ) from error
    return directory

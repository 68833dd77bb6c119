"""A broker process on a disk that can be made bad, and a producer that remembers what it was promised.

File systems are mounted for one test each, always unmounted by their own path, and thawed before that. Root only.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from attrs import define, field

from tests.support.clients.remoting import exchange, message_fields
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import free_port_base
from tests.support.waiting import wait_for

SECONDS_MAX = 30.0
SEND, VIEW, CREATE_TOPIC, RUNTIME_INFO, MEMBER_STATUS = 10, 33, 17, 28, 20001
OK, FLUSH_DISK_TIMEOUT, SYSTEM_ERROR, SERVICE_NOT_AVAILABLE = 0, 10, 1, 14
TOPIC = "Faults"
SETTINGS = {
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    # What a small disk is to be tested for is never a ratio, unless a test says so.
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
}
HANG = -1  # In the place of an errno, for a Shim.
_EXT4_IOC_SHUTDOWN, _WITHOUT_JOURNAL = 0x8004587D, 2


# Disks


@define
class Disk:
    """A mounted file system. `device` is its loop device's name, empty for a tmpfs."""

    path: Path
    device: str = ""

    def fill(self, *, leave: int = 0) -> Path:
        """Take all room but `leave` bytes, with one file."""
        ballast = self.path / "ballast"
        found = os.statvfs(self.path)
        size = found.f_bavail * found.f_frsize - leave
        assert size > 0
        with ballast.open("wb", buffering=0) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError:  # The file's own structures take some of it.
                with suppress(OSError):
                    while file.write(bytes(4096)):
                        pass
        return ballast

    def remount(self, mode: str) -> bool:
        """`ro` or `rw`; False when the kernel refuses, as it does while somebody writes there."""
        done = subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], check=False, capture_output=True)
        return done.returncode == 0

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", str(self.path)], check=True)

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "-u", str(self.path)], check=False, stderr=subprocess.DEVNULL)

    def report_error(self) -> None:
        """What the kernel does when it finds ext4's own structures damaged: it goes read-only at once."""
        Path(f"/sys/fs/ext4/{self.device}/trigger_fs_error").write_text("a test's own")

    def cut_power(self) -> None:
        """From this moment on nothing reaches the disk, not even what the journal has in memory."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(fd)


@contextmanager
def mounted(path: Path, *arguments: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(path)], check=False, capture_output=True)
        for _ in range(100):  # Until whoever was killed is gone.
            if subprocess.run(["umount", str(path)], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def tmpfs(path: Path, *, megabytes: float) -> Iterator[Disk]:
    with mounted(path, "-t", "tmpfs", "-o", f"size={round(megabytes * 1024)}k", "twinlog-test"):
        yield Disk(path)


def make_image(path: Path, *, megabytes: int) -> Path:
    """An ext4 file system in a file, without blocks that are kept for root."""
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0", str(path)], check=True)
    return path


@contextmanager
def ext4(image: Path, path: Path) -> Iterator[Disk]:
    with mounted(path, "-o", "loop,errors=remount-ro", str(image)):
        source = next(line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if f" {path} " in line)
        yield Disk(path, source.rpartition("/")[2])


# The broker


class Connection:
    """Requests to a broker, one at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: object) -> tuple[dict, bytes]:
        """The header and body of the answer."""
        return exchange(self._socket, code, {key: str(value) for key, value in fields.items()}, body)


@define(eq=False)
class Broker:
    """`twinlog broker` on a directory of a bad disk."""

    root: Path
    said: Path  # Its log: on a good disk.
    settings: Mapping[str, str] = field(factory=dict)
    env: Mapping[str, str] = field(factory=dict)
    port: int = field(factory=lambda: free_port_base() + 11)
    process: subprocess.Popen[str] | None = field(default=None, init=False)

    def start(self) -> None:
        settings = {**SETTINGS, **self.settings, "listenPort": str(self.port), "storePathRootDir": str(self.root)}
        command = [PROGRAM, "broker"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        env = {**os.environ, "TWINLOG_LOG": "json", "PYTHONFAULTHANDLER": "1", **self.env}
        with self.said.open("ab") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env)
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith("ready "):
            self.end(signal.SIGKILL)
            raise AssertionError(self.said.read_text())

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(SECONDS_MAX)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL if kind is not None else signal.SIGTERM)

    def connect(self) -> Connection:
        return Connection(self.port)

    def lines(self, event: str) -> list[dict]:
        """What it said of this."""
        found = []
        for line in self.said.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if event in str(entry.get("event", "")):
                    found.append(entry)
        return found

    def state(self) -> dict:
        with self.connect() as connection:
            return dict(json.loads(connection.ask(MEMBER_STATUS)[1]))

    def counters(self) -> dict:
        with self.connect() as connection:
            return dict(json.loads(connection.ask(RUNTIME_INFO)[1])["table"])


@define(eq=False)
class Producer:
    """Sends, and remembers what the broker answered with success: id and body."""

    broker: Broker
    acked: list[tuple[str, bytes]] = field(factory=list)
    refused: list[tuple[int, str]] = field(factory=list)
    sent: int = 0

    def send(self, connection: Connection, size: int = 1000) -> int:
        """The code of the answer."""
        body = b"%d." % self.sent + os.urandom(size)
        self.sent += 1
        properties = f"UNIQ_KEY\x01{self.sent:032d}\x02WAIT\x01true"
        fields = message_fields(TOPIC, queue_id=self.sent % 4, queues=4, properties=properties)
        header, _ = connection.ask(SEND, body, **fields)
        if header["code"] == OK:
            self.acked.append((header["extFields"]["msgId"], body))
        else:
            self.refused.append((header["code"], header.get("remark", "")))
        return int(header["code"])

    def send_some(self, count: int, size: int = 1000) -> None:
        """All of them must be taken."""
        with self.broker.connect() as connection:
            assert [self.send(connection, size) for _ in range(count)] == [OK] * count, self.refused

    def send_until_refused(self, size: int = 1000) -> tuple[int, str]:
        """Code and remark of the first one that is not taken."""
        with self.broker.connect() as connection:
            while self.send(connection, size) == OK:
                assert len(self.acked) < 100_000
        return self.refused[-1]

    def seconds_until_taken(self) -> float:
        with self.broker.connect() as connection:
            return wait_for(lambda: self.send(connection) == OK, "a message is taken again")

    def check(self) -> None:
        """Whatever was acknowledged can be read, by the id that the producer was given."""
        assert self.acked
        with self.broker.connect() as connection:
            for message_id, body in self.acked:
                header, record = connection.ask(VIEW, offset=int(message_id[-16:], 16))
                assert header["code"] == OK, (message_id, header)
                assert body in record

    def check_queues(self) -> None:
        """Every acknowledged message is in its queue, too: there are at least as many units as acks, in all."""
        with self.broker.connect() as connection:
            ends = [int(connection.ask(30, topic=TOPIC, queueId=n)[0]["extFields"]["offset"]) for n in range(4)]
        assert sum(ends) >= len(self.acked)


# The shim

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* $FAULTS holds lines: CALL ERRNO PART-OF-PATH. The last one for a call and path counts. */
static int listed(const char *call, const char *path) {
    char name[32], part[256];
    int number, found = 0;
    FILE *file = fopen(getenv("FAULTS"), "r");
    if (file) {
        while (fscanf(file, "%31s %d %255s", name, &number, part) == 3)
            if (!strcmp(name, call) && strstr(path, part)) found = number;
        fclose(file);
    }
    return found;
}

/* Of a number below 0 the call hangs for as long as it is there. */
static int looked_up(const char *call, const char *path) {
    static __thread int inside;
    int number = 0;
    if (inside) return 0;
    inside = 1;
    while ((number = listed(call, path)) < 0) usleep(10000);
    inside = 0;
    return number;
}

/* A log file that was made without a name, and in advance in another directory, is told by its inode. */
static __thread struct stat wanted;
static __thread char *named;

static int is_wanted(const char *path, const struct stat *seen, int type, struct FTW *at) {
    (void)type, (void)at;
    if (seen->st_ino != wanted.st_ino || seen->st_dev != wanted.st_dev) return 0;
    strcpy(named, path);
    return 1;
}

static void find_name(int fd, char *path) {
    char root[4096], log[4110];
    size_t size = strlen(path), tail = strlen(" (deleted)");
    if (size < tail || strcmp(path + size - tail, " (deleted)") || access(getenv("FAULTS"), F_OK)) return;
    if (fstat(fd, &wanted) || !wanted.st_nlink) return;
    strcpy(root, path);
    for (char *slash; (slash = strrchr(root, '/')) && slash != root;) {
        *slash = 0;
        snprintf(log, sizeof log, "%s/commitlog", root);
        if (access(log, F_OK)) continue;
        named = path;
        nftw(root, is_wanted, 8, FTW_PHYS);
        return;
    }
}

static int fault(const char *call, int fd) {
    char path[4096], link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = 0;
    find_name(fd, path);
    return looked_up(call, path);
}

#define SYNC(name)                                             \
    int name(int fd) {                                         \
        static int (*real)(int);                               \
        if (!real) real = dlsym(RTLD_NEXT, #name);             \
        int number = fault(#name, fd);                         \
        if (number) { errno = number; return -1; }             \
        return real(fd);                                       \
    }
SYNC(fsync)
SYNC(fdatasync)

/* Half of it goes through first, as a disk that fills up does it. */
#define PWRITE(name)                                                              \
    ssize_t name(int fd, const void *data, size_t size, off_t at) {               \
        static ssize_t (*real)(int, const void *, size_t, off_t);                 \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                \
        int number = fault("pwrite", fd);                                         \
        if (!number) return real(fd, data, size, at);                             \
        if (size > 100) return real(fd, data, size / 2, at);                      \
        errno = number;                                                           \
        return -1;                                                                \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

/* The file that is mapped there decides. */
int msync(void *at, size_t size, int flags) {
    static int (*real)(void *, size_t, int);
    if (!real) real = dlsym(RTLD_NEXT, "msync");
    char line[4096], path[4096] = "";
    unsigned long first, last;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &first, &last) == 2 && first <= (unsigned long)at && (unsigned long)at < last)
            strcpy(path, line);
    if (maps) fclose(maps);
    int number = looked_up("msync", path);
    if (number) { errno = number; return -1; }
    return real(at, size, flags);
}
"""


@define
class Shim:
    """Stands between a process and its C library."""

    library: Path
    faults: Path

    @classmethod
    def build(cls, directory: Path) -> "Shim":
        source, library, faults = directory / "shim.c", directory / "shim.so", directory / "faults"
        source.write_text(_SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        return cls(library, faults)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "FAULTS": str(self.faults)}

    def arm(self, calls: str, number: int, part: str) -> None:
        """From now on these calls, named with blanks between, fail with this errno on a file whose path holds `part`, or
        hang where it is HANG.
        """
        scratch = self.faults.with_suffix(".new")
        scratch.write_text("".join(f"{call} {number} {part}\n" for call in calls.split()))
        scratch.replace(self.faults)

    def disarm(self) -> None:
        self.faults.unlink(missing_ok=True)

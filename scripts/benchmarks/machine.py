"""The machine: what a number depends on besides the code, and what processes take of it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from tests.support.process_group import jars

ROOT = Path(__file__).parents[2]


def facts() -> dict[str, Any]:
    """Return the facts that every raw result carries."""
    return {
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _output("java", "-version").splitlines()[0] if shutil.which("java") else "no Java",
        "rocketmq": jars.VERSION,
        "commit": _output("git", "rev-parse", "HEAD"),
        "changed_files": len(_output("git", "status", "--porcelain", "--untracked-files=no").splitlines()),
        "load_average_1m": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip()


def memory(pid: int) -> dict[str, float]:
    """Memory of a process, MiB: its own (anonymous) pages, and mapped file pages, which the kernel can drop."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kib = {name: int(status[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")}
    return {"anon_mib": kib["RssAnon"] / 1024, "file_mib": (kib["RssFile"] + kib["RssShmem"]) / 1024}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def drop_caches() -> bool:
    """Let the kernel forget what it cached of files; False where we may not."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True

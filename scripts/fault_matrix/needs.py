"""What rows need of a machine, besides Python."""

import os
import shutil

from scripts.fault_matrix.checkers import porcupine
from scripts.fault_matrix.fault_clock import library
from scripts.fault_matrix.fault_load import can_cap
from scripts.fault_matrix.rows import Row
from tests.support.process_group.etcd import DEBIAN


def missing(row: Row) -> str:
    """Which right or tool of a row this machine does not give; empty: none."""
    if "root" in row.needs and os.geteuid() != 0:
        return "needs the super-user, for mounts or network namespaces"
    if "root" in row.needs and (
        lacking := [each for each in ("ip", "iptables", "nsenter") if shutil.which(each) is None]
    ):
        return f"needs {', '.join(lacking)}: apt install iproute2 iptables util-linux"
    if "faketime" in row.needs and library() is None:
        return "needs libfaketime: apt install libfaketime"
    if "cgroup" in row.needs and not can_cap():
        return "needs to make control groups: root, and /sys/fs/cgroup to write to"
    if "cc" in row.needs and shutil.which("cc") is None:
        return "needs cc: apt install gcc libc6-dev"
    if "go" in row.needs and not porcupine.is_there():
        return "needs go, for porcupine: apt install golang-go"
    if "etcd" in row.needs and DEBIAN.missing:
        return DEBIAN.missing
    if "java" in row.needs and (lacking := [each for each in ("java", "mvn") if shutil.which(each) is None]):
        return f"needs {', '.join(lacking)}: apt install default-jre-headless maven"
    return ""

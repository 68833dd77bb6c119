"""Replaces itself with a program that is none of ours, and that ends when the process that started it does, whatever ends that.

Usage: tied.py PARENT PROGRAM ARGUMENT...    PARENT: the process that starts it, from its main thread. A file of its own, without
imports of ours, so that it takes no time. Variables of etcd are left out: it refuses to start with one that a flag overrides.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Does not return."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(parent):
        return  # It ended before this was asked for.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main(*sys.argv[1:])

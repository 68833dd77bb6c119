"""A broker as `twinlog broker -c CONF` runs it, whose event loop stands still for a while at SIGUSR1."""

import signal
import sys
import time
from pathlib import Path

from twinlog.cluster.cli.run.broker import run_broker
from twinlog.cluster.cli.run.settings import load_broker

STALL_SECONDS = 8.0

if __name__ == "__main__":
    # Python calls it in the main thread, where the loop is; other threads go on.
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(STALL_SECONDS))
    conf = Path(sys.argv[1])
    run_broker(load_broker(conf, (), namesrv=None), config_file=conf)

"""Log lines of the command line: what a person reads on stderr."""

import subprocess
import sys

PROGRAM = """
import structlog
from cluster.cli.log import set_up_log
set_up_log(for_good=True)
class Parts:
    def __repr__(self):
        raise SystemExit("all of the broker is printed")
def work(parts):
    raise ValueError("the disk is gone")
try:
    work(Parts())
except ValueError:
    structlog.get_logger().exception("a task failed", task="flush")
"""


def test_a_logged_exception_shows_where_but_not_every_value_there():
    """The parts of a broker hold each other: with the values of variables one traceback takes minutes."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=True)
    for part in ("a task failed", "task=flush", "in work", "ValueError: the disk is gone"):
        assert part in ran.stderr

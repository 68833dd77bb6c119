"""`twinlog audit` for spark-submit, see cluster/cli/audit.py."""

from twinlog.cluster.cli.audit import audit
from twinlog.cluster.cli.main import run_alone

if __name__ == "__main__":
    run_alone(audit)

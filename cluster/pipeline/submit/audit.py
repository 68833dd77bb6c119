"""For spark-submit: `twinlog audit`, see cluster/cli/audit.py."""

from cluster.cli.audit import audit
from cluster.cli.main import run_alone

if __name__ == "__main__":
    run_alone(audit)

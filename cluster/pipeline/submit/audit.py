"""For spark-submit: `twinlog audit`, see cluster/cli/audit.py."""

from cluster.cli.audit import main

if __name__ == "__main__":
    main()

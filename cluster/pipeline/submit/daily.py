"""For spark-submit: see cluster/pipeline/daily.py."""

from twinlog.cluster.pipeline.daily import main

if __name__ == "__main__":
    main()

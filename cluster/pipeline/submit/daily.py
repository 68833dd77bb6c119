"""Daily report for spark-submit, see cluster/pipeline/jobs/daily.py."""

from twinlog.cluster.pipeline.jobs.daily import main

if __name__ == "__main__":
    main()

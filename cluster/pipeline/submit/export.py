"""Export for spark-submit, see cluster/pipeline/jobs/export.py."""

from twinlog.cluster.pipeline.jobs.export import main

if __name__ == "__main__":
    main()

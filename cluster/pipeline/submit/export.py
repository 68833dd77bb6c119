"""For spark-submit: see cluster/pipeline/export.py."""

from twinlog.cluster.pipeline.export import main

if __name__ == "__main__":
    main()

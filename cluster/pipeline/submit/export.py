"""For spark-submit: see cluster/pipeline/export.py."""

from cluster.pipeline.export import main

if __name__ == "__main__":
    main()

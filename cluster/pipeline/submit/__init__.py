"""Entry points for spark-submit, in a directory of their own because Spark puts it first in the import path."""

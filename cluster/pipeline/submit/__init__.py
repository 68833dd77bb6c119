"""What spark-submit is given: files of a directory of their own, for Spark puts it first in the path of imports."""

"""Rows of Spark as messages of a running cluster, format `rocketmq`: see docs/reference/spark.md.

Begin with writers.py, then rows.py (columns into messages, pure), ids.py (the id of each row, pure) and sending.py.
repetitions.py is the reader's side of the ids. Imported by topics, which has the source.
"""

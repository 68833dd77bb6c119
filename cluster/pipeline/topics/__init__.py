"""Running clusters as a Spark source, format `rocketmq`: see docs/reference/spark.md. Source: PySpark's data source API.

Begin with datasource.py, then offsets.py (what is read next, pure) and pulling.py (a range of a queue into Arrow).
connection.py is shared with the sink. Imported by jobs and the sink.
"""

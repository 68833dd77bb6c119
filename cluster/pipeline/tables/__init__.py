"""Tables of records, queues and index for Spark. Source: PySpark's data source API.

Begin with datasource.py, then schemas.py.
Imported by audit and jobs.
"""

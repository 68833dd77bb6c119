"""Spark: store directories as tables, and the audit that proves replicas equal. Applications import twinlog.spark.

Begin with tables/datasource.py and jobs/audit.py; only jobs and the data sources of tables import pyspark.
Imported by cli.
"""

"""Spark: store directories as tables, and the audit that proves replicas equal. Applications import twinlog.spark.

Begin with tables/datasource.py, topics/datasource.py and jobs/audit.py. Only jobs and data sources import pyspark, so that
comparing and reading work and are tested without it. pyarrow.fs is imported where it is used: most stores are on local disks.
Imported by cli.
"""

"""Spark: store directories as tables, and the audit that proves replicas equal. Applications import twinlog.spark.

Begin with tables/datasource.py and jobs/audit.py. Only jobs and the data sources of tables import pyspark, so that comparing and
reading work and are tested without it. pyarrow.fs is imported where it is used: most stores are on local disks.
Imported by cli.
"""

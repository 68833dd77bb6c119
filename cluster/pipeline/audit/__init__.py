"""Comparing the members of a log, finding by finding. Pure, but for reading; without Spark.

Begin with compare.py and findings.py.
Imported by jobs and report.
"""

"""Compares the members of a log and classifies the differences. Pure except for reading; no Spark.

Begin with compare.py and findings.py.
Imported by jobs and report.
"""

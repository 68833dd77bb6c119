"""Spark jobs: audit, export, daily report.

Begin with audit.py.
Imported by cli and submit.
"""

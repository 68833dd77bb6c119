"""The audit's report: HTML, JSON, Parquet.

Begin with page.py.
Imported by cli.
"""

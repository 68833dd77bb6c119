"""Report of an audit: HTML, JSON, Parquet.

Begin with page.py.
Imported by cli.
"""

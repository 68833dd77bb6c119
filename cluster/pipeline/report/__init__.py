"""Report of an audit: HTML, JSON, Parquet; and the page of a ledger.

Begin with page.py, the report of one audit, and ledger_page.py, the page of a ledger.
Imported by cli.
"""

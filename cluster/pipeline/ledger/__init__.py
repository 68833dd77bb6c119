"""The ledger of an audit that goes on: what is proved of a log's copies, what is to be proved next, and the files that keep it.

Begin with values.py, then claims.py and plan.py; files.py has the form on disk.
Imported by the command line.
"""

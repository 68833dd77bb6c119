"""Tag and SQL92 filters, evaluated on the broker.

Begin with tags.py and sql.py.
Imported by tables and the processors.
"""

"""Messages as bytes: the format of a record, its properties and keys, and scans that find and check records.

Begin with message.py; scan.py checks one record after another, column_scan.py many at once with numpy.
Pure: no file is opened here. Imported by every package of the store, by ha and cluster.
"""

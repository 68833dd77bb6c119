"""Topics, groups, offsets, connected clients and queue locks of a broker, and the files they are kept in.

Begin with tables.py.
Imported by the processors and by admin for their formats.
"""

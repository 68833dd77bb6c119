"""Where stores lie, and how their files are read: disks and object storage.

Begin with places.py and files.py.
Imported by tables and audit.
"""

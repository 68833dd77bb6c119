"""Storage of logs and stores: their files on disks and in object storage, and how these are read.

Begin with places.py and files.py.
Imported by tables and audit.
"""
